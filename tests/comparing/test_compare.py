"""The comparison as a whole: what it says, what it refuses, what it withholds."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.comparing import Comparison, compare
from harness.comparing.numbers import signed
from harness.comparing.sentences import cost_phrase
from harness.comparing.tables import family, summary_tables
from harness.errors import UserError
from harness.judging.two_keys import Question, judge
from harness.measures import ACCURACY, DEVICE_SECONDS, EPOCHS, QUALITIES, USD, WITH_WORKER_START, Outcome
from harness.schema.records import Cost, TrialRecord, Unit
from harness.statistics import Interval
from tests.synthetic import ENVIRONMENT, make_space, make_units, with_chosen_log_likelihood


def with_result(unit: Unit, **changes: object) -> Unit:
    assert unit.result is not None
    return unit.model_copy(update={"result": unit.result.model_copy(update=changes)})


def test_rows_hold_what_was_recorded() -> None:
    units = make_units(("ldn", "grid"), range(3))
    comparison = compare(units)
    row = comparison.search.rows[1]
    recorded = [unit.result for unit in units if unit.plan.method == "grid" and unit.result]
    assert (row.method, row.seeds) == ("grid", (0, 1, 2))
    assert row.per_seed["test_ece"] == tuple(result.final.chosen.ece for result in recorded)
    assert row.values[DEVICE_SECONDS.key].mean == pytest.approx(
        sum(result.cost.device_seconds for result in recorded) / 3
    )
    assert comparison.methods == ("ldn", "grid")


def test_ratios_are_paired_by_seed_whatever_the_order_of_the_units() -> None:
    units = make_units(("ldn", "grid"), range(4))
    ratio = compare(units).search.pairs[0].cost_ratios[DEVICE_SECONDS.key]
    assert compare(units[::-1]).search.pairs[0].cost_ratios[DEVICE_SECONDS.key] == ratio
    costs = {(u.plan.method, u.plan.seed): u.result.cost.device_seconds for u in units if u.result}
    product = 1.0
    for seed in range(4):
        product *= costs["grid", seed] / costs["ldn", seed]
    assert ratio.mean == pytest.approx(product**0.25)
    assert ratio.low is not None
    assert ratio.low > 1


def test_the_sentence_has_the_promised_form() -> None:
    (sentence,) = compare(make_units(("ldn", "grid"), range(12))).sentences
    assert re.match(r"ldn needs 4\.\d+× \(4\..*\) less device time than grid; its accuracy is as good: ", sentence)
    assert "margin 0.01" in sentence
    (sentence,) = compare(make_units(("ldn", "grid"), range(12), ldn_accuracy=-0.1, spread=0.001)).sentences
    assert "its accuracy is worse by more than the margin of 0.01: by 0.1" in sentence
    (sentence,) = compare(make_units(("ldn", "grid"), range(8), ldn_log_likelihood=-0.03)).sentences
    assert "its log-likelihood is undecided (" in sentence
    assert "seeds in all (4 in 5) would decide" in sentence
    (sentence,) = compare(make_units(("ldn", "grid"), range(3))).sentences
    assert sentence.count("on too few seeds for a verdict") == 3


def test_sentences_show_differences_as_the_tables_do() -> None:
    """A larger ECE is a positive difference, though it is worse."""
    comparison = compare(make_units(("ldn", "grid"), range(12)))
    (pair,), (sentence,) = comparison.search.pairs, comparison.sentences
    (ece,) = (quality for quality in QUALITIES if quality.title == "ECE")
    assert pair.verdicts[ece.key].outcome in ("better", "as good", "undecided")
    assert (
        signed(pair.differences[ece.key]) in sentence.partition("its ECE is ")[2]
        or pair.verdicts[ece.key].outcome == "better"
    )


def test_ece_is_judged_in_its_own_direction() -> None:
    units = make_units(("ldn", "grid"), range(12))
    worse = []
    for unit in units:
        assert unit.result is not None
        final = unit.result.final
        ece = final.chosen.ece + (0.5 if unit.plan.method == "ldn" else 0.0)
        chosen = final.chosen.model_copy(update={"ece": ece})
        worse.append(with_result(unit, final=final.model_copy(update={"chosen": chosen})))
    assert compare(worse).search.pairs[0].verdicts["test_ece"].outcome == "worse beyond the margin"
    assert compare(units).search.pairs[0].verdicts["test_ece"].outcome in ("better", "as good")


def test_every_method_is_judged_against_the_one_that_trains_every_depth_one_shots_first() -> None:
    comparison = compare(make_units(("asha", "ldn", "grid", "random_search", "exits"), range(3)))
    pairs = [(pair.method, pair.baseline) for pair in comparison.search.pairs]
    assert sorted(pairs[:2]) == [("exits", "grid"), ("ldn", "grid")]
    assert sorted(pairs[2:]) == [("asha", "grid"), ("random_search", "grid")]
    assert (comparison.reference, comparison.search.against) == ("ldn", "grid")
    [against] = [table for table in summary_tables(comparison) if table.title.startswith("Each method − grid")]
    assert {row[0] for row in against.rows} == {"asha", "ldn", "random_search", "exits"}


def test_a_named_reference_is_judged_against_every_other_method() -> None:
    comparison = compare(make_units(("asha", "ldn", "grid"), range(10)), "ldn")
    assert [(pair.method, pair.baseline) for pair in comparison.search.pairs] == [("ldn", "asha"), ("ldn", "grid")]
    assert comparison.search.against is None
    without_grid = compare(make_units(("asha", "ldn", "random_search"), range(3)))
    assert [pair.method for pair in without_grid.search.pairs] == ["ldn", "ldn"]


def test_the_family_is_every_verdict_of_the_stage() -> None:
    """Holm over all of them: with more methods beside it, a pair's p-values are held to a stricter level."""
    units = make_units(("ldn", "grid", "asha", "random_search", "optuna_tpe", "golden_section"), range(10))
    stage = compare(units).search
    assert family(stage).startswith("The chance that any of the 20 verdicts is wrong")  # 5 pairs × (cost + 3 qualities)
    rows = {row.method: row for row in stage.rows}
    questions = []
    for pair in stage.pairs:
        ours, theirs = (np.array(rows[name].per_seed[DEVICE_SECONDS.key]) for name in (pair.method, pair.baseline))
        questions.append(Question(tuple(np.log(theirs / ours))))
        for key, margin, sign in (("test_accuracy", 0.01, 1), ("test_log_likelihood", 0.05, 1), ("test_ece", 0.02, -1)):
            ours, theirs = (np.array(rows[name].per_seed[key]) for name in (pair.method, pair.baseline))
            questions.append(Question(tuple(sign * (ours - theirs)), margin))
    said = [verdict.outcome for pair in stage.pairs for verdict in pair.verdicts.values()]
    assert said == [verdict.outcome for verdict in judge(questions).verdicts]


def test_margins_stand_beside_what_lies_between_the_depths() -> None:
    units = make_units(("ldn", "grid"), range(3))
    comparison = compare(units)
    curves = [unit.result.final.per_depth_test for unit in units if unit.plan.method == "grid" and unit.result]
    means = [
        sum(curve[place].measures.log_likelihood for curve in curves) / len(curves) for place in range(len(curves[0]))
    ]
    assert comparison.depth_spread["test_log_likelihood"] == pytest.approx(max(means) - min(means))
    assert comparison.margins_said.startswith(
        "Margins: accuracy 0.01, log-likelihood 0.05 nats, ECE 0.02; grid's best "
    )
    assert compare(make_units(("ldn", "asha"), range(3))).margins_said.endswith("ECE 0.02.")
    spread = comparison.depth_spread["test_log_likelihood"]
    wide = compare(make_units(("ldn", "grid"), range(3), space=make_space(margins={"log_likelihood": 2 * spread})))
    [note] = [note for note in wide.notes if note.startswith("The margin of log-likelihood")]
    assert "any depth passes as good. Set a smaller margins.log_likelihood." in note
    assert not any(note.startswith("The margin of log-likelihood") for note in comparison.notes)


def test_the_reference_may_be_another_method() -> None:
    comparison = compare(make_units(("ldn", "grid", "asha"), range(3)), reference="grid")
    assert comparison.methods[0] == "grid"
    assert [pair.baseline for pair in comparison.search.pairs] == ["ldn", "asha"]
    assert "grid needs 4.7× (3.9–5.8) more device time than ldn" in comparison.sentences[0]


@pytest.mark.parametrize(
    ("methods", "reference"),
    [(("grid", "ldn", "asha"), "ldn"), (("grid", "asha"), "grid"), (("somebodys_method",), "somebodys_method")],
)
def test_the_reference_is_the_first_that_learns_its_depth_else_the_first(
    methods: tuple[str, ...], reference: str
) -> None:
    assert compare(make_units(methods, range(2))).reference == reference


def test_one_seed_gives_numbers_but_no_verdict() -> None:
    comparison = compare(make_units(("ldn", "grid"), [3]))
    (pair,) = comparison.search.pairs
    assert {verdict.outcome for verdict in pair.verdicts.values()} == {"too few seeds"}
    assert pair.differences[ACCURACY.key].low is None
    assert "no interval and no verdict" in comparison.sentences[0]
    assert "as good" not in comparison.sentences[0] + comparison.recommendation.rests_on


def test_a_method_that_collapses_on_two_of_twenty_seeds_neither_matches_nor_wins() -> None:
    units = make_units(("ldn", "grid"), range(20), ldn_accuracy=0.01, ldn_log_likelihood=0.04)
    assert compare(units).winner.method == "ldn"
    for seed in (3, 7):
        units = with_chosen_log_likelihood(units, "ldn", seed, -3.0)
    comparison = compare(units)
    (pair,), (sentence,) = comparison.search.pairs, comparison.sentences
    failed = pair.failures["test_log_likelihood"]
    assert pair.verdicts["test_log_likelihood"].outcome.endswith("on most seeds")
    assert (failed.seeds, failed.n, failed.worst_seed in (3, 7)) == ((3, 7), 20, True)
    assert failed.at_most == pytest.approx(0.283, abs=0.001)
    assert "outside the margin on 2 of 20 seeds (95 % upper bound: 28 %)" in sentence
    assert "ldn matches" not in comparison.recommendation.sentence and comparison.winner.method == "grid"


def test_copied_results_are_ties() -> None:
    """A copied result has no spread: every seed is on one side, or none is."""
    ldn, grid = make_units(("ldn", "grid"), [0])
    units = []
    for seed in range(12):
        for unit in (ldn, grid):
            plan = unit.plan.model_copy(update={"seed": seed})
            trials = [
                trial.model_copy(update={"seed": seed, "config_hash": plan.trial_config(trial.depth).hash})
                for trial in unit.trials
            ]
            units.append(unit.model_copy(update={"plan": plan, "trials": tuple(trials)}))
    comparison = compare(units)
    assert comparison.search.pairs[0].verdicts[DEVICE_SECONDS.key].outcome == "cheaper"
    assert comparison.is_decided


def test_a_fairness_difference_withholds_only_the_verdicts_it_touches() -> None:
    other = ENVIRONMENT.model_copy(update={"torch": "2.12.0"})
    comparison = compare(make_units(("ldn", "grid", "asha"), range(8), environments={"asha": other}))
    fair, unfair = comparison.search.pairs
    assert (fair.method, bool(fair.verdicts), fair.withheld) == ("ldn", True, ())
    assert (unfair.method, unfair.verdicts) == ("asha", {})
    assert unfair.withheld == ("torch: 2.12.0 (asha) / 2.13.0 (grid)",)
    assert comparison.sentences[1] == "asha against grid: no verdict, because the units are not equal in: torch."
    assert [item.rule for item in comparison.fairness] == ["torch"]


def test_contaminated_time_gives_the_lead_to_tflop() -> None:
    comparison = compare(make_units(("ldn", "grid", "asha"), range(3), seconds_factor={"grid": 3.0}))
    assert comparison.contamination.found
    assert any("grid" in sign and "training step" in sign for sign in comparison.contamination.signs)
    assert comparison.sentences[0].startswith("ldn needs 3.9×")
    assert " less compute (TFLOP) and 7.8× " in comparison.sentences[0]
    assert " fewer epochs than grid; " in comparison.sentences[0]
    assert comparison.search.pairs[0].cost_ratios[EPOCHS.key].mean > 1
    assert any("contaminated" in note for note in comparison.notes)
    assert not compare(make_units(("ldn", "grid", "asha"), range(3))).contamination.found


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: make_units(("ldn", "grid"), range(2), capped_by_epochs=True), "the epoch cap sets its cost: 22 of 22"),
        (
            lambda: make_units(("ldn", "grid"), range(2), q_converged=False),
            "ldn: its weights over depths had not converged",
        ),
        (lambda: make_units(("ldn", "asha"), range(2)), "asha: it decided while several of its trials ran"),
        (lambda: make_units(("ldn", "grid"), range(2), failed_depths={"grid": [2]}), "grid: 2 of 22 trials failed"),
        (lambda: make_units(("ldn", "grid"), range(2), retried=[("grid", 0)]), "0.5 device-seconds were lost"),
        (lambda: make_units(("ldn", "grid"), range(2)), "kept no values per test row"),
    ],
)
def test_notes(make: Callable[[], list[Unit]], expected: str) -> None:
    assert any(expected in note for note in compare(make()).notes)


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        ({"ended": "interrupted", "tail_unknown": True}, ["were lost to workers that died", "a driver was killed"]),
        ({"ended": "interrupted"}, ["the run was told to stop and could not wait for a report, so 0.5 device-seconds"]),
        ({"ended": "interrupted", "lost_seconds": 0.0}, []),
    ],
)
def test_a_stop_that_was_asked_for_is_no_death(attempt: dict[str, Any], said: list[str]) -> None:
    """And where it lost nothing, there is nothing to say."""
    units = make_units(("ldn", "grid"), range(2), retried=[("grid", 0)])

    def changed(trial: TrialRecord) -> TrialRecord:
        if len(trial.attempts) == 1:
            return trial
        first = trial.attempts[0].model_copy(update=attempt)
        phases = {**trial.cost.phases, "lost": first.lost_seconds}
        cost = trial.cost.model_copy(update={"phases": phases})
        return trial.model_copy(update={"attempts": (first, *trial.attempts[1:]), "cost": cost})

    stopped = [unit.model_copy(update={"trials": tuple(map(changed, unit.trials))}) for unit in units]
    notes = [
        note for note in compare(stopped).notes if any(word in note for word in ("died", "killed", "told to stop"))
    ]
    assert len(notes) == len(said)
    for note, words in zip(notes, said, strict=True):
        assert words in note


def test_unfinished_cells_are_named_and_the_rest_is_compared() -> None:
    comparison = compare(make_units(("ldn", "grid", "asha"), range(3), unfinished=[("grid", 1)]), "ldn")
    assert comparison.missing == ("grid seed 1",)
    assert comparison.search.pairs[0].seeds == (0, 2)
    assert comparison.search.pairs[1].seeds == (0, 1, 2)


def test_a_method_whose_trials_all_failed_is_named() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(3), failed_depths={"grid": range(11)}))
    assert comparison.unfinished_methods == ("grid",)
    assert comparison.search.pairs == ()
    assert comparison.recommendation.action == "not decided"
    assert any("grid seed 0: all 11 trials failed" in note for note in comparison.notes)


def test_a_reference_without_a_finished_unit_leaves_the_table() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(2), unfinished=[("ldn", 0), ("ldn", 1)]))
    assert (comparison.methods, comparison.unfinished_methods) == (("grid",), ("ldn",))
    assert comparison.sentences == ()
    assert comparison.missing == ("ldn seed 0", "ldn seed 1")


def test_methods_without_a_common_seed_are_not_paired() -> None:
    units = [*make_units(("ldn",), [0, 1]), *make_units(("grid",), [2, 3])]
    comparison = compare(units)
    assert comparison.search.pairs == ()
    assert comparison.equal_quality == ()
    assert len(comparison.missing) == 4


@pytest.mark.parametrize(
    ("units", "reference", "message"),
    [
        ([], "ldn", "at least one finished unit; there are none"),
        (make_units(("ldn",), [0], unfinished=[("ldn", 0)]), "ldn", "at least one finished unit; 1 unit"),
        (make_units(("ldn", "grid"), [0]), "gird", "got 'gird', did you mean 'grid'"),
        ([*make_units(("ldn",), [0]), *make_units(("ldn",), [0])], "ldn", "ldn seed 0 is there twice"),
    ],
)
def test_what_cannot_be_compared_is_refused(units: list[Unit], reference: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(units, reference)


def test_mixed_settings_are_refused_with_the_difference() -> None:
    other = make_space(training={"max_epochs": 1000, "patience": 200, "eval_every": 20, "report_every": 20, "lr": 0.05})
    units = [*make_units(("ldn",), [0]), *make_units(("grid",), [0], space=other)]
    with pytest.raises(UserError, match=r"ldn seed 0 and grid seed 0 differ in training\.lr: 0\.1 / 0\.05$"):
        compare(units)
    first, second = make_units(("ldn",), [0, 1])
    second = second.model_copy(update={"plan": second.plan.model_copy(update={"options": {"warm": 3}})})
    with pytest.raises(UserError, match=r"differ in options\.warm: None / 3$"):
        compare([first, second])


def test_another_description_is_no_other_setting() -> None:
    units = [*make_units(("ldn",), [0]), *make_units(("grid",), [0], space=make_space(description="reworded"))]
    assert compare(units).methods == ("ldn", "grid")


def test_refit_is_shown_for_all_or_for_none() -> None:
    both = compare(make_units(("ldn", "grid"), range(3), refit=True))
    assert both.refit is not None
    search = both.search.rows[0].values[DEVICE_SECONDS.key].mean
    assert both.refit.rows[0].values[DEVICE_SECONDS.key].mean > search
    mixed = [*make_units(("ldn",), range(3), refit=True), *make_units(("grid",), range(3))]
    comparison = compare(mixed)
    assert comparison.refit is None
    assert any("not refitted: grid seed 0, grid seed 1, grid seed 2" in note for note in comparison.notes)


def test_a_result_that_disagrees_with_its_trials_is_named() -> None:
    units = make_units(("ldn", "grid"), range(2))
    result = units[1].result
    assert result is not None
    units[1] = with_result(units[1], cost=Cost(**{**result.cost.model_dump(), "held_seconds": 99.0}))
    assert any("grid seed 0: its trials add up to" in note for note in compare(units).notes)


def test_a_comparison_survives_json() -> None:
    comparison = compare(make_units(range_of_methods(), range(3), refit=True))
    assert Comparison.model_validate_json(comparison.model_dump_json()) == comparison


def range_of_methods() -> tuple[str, ...]:
    return ("ldn", "grid", "random_search", "asha", "somebodys_method")


def test_the_checklist_answers_from_the_records() -> None:
    full = {item.question: item for item in compare(make_units(range_of_methods(), range(3), refit=True)).checklist}
    bare = {item.question: item for item in compare(make_units(("ldn", "asha"), [0])).checklist}
    assert len(full) == len(bare) == 16
    for question, rich_answer, poor_answer in [
        ("Is random search among the methods?", "yes", "no"),
        ("Several runs, with their seeds reported?", "yes", "no"),
        ("Is the time of the whole method reported, not of the search phase only?", "yes", "partly"),
        ("Were ablations run?", "partly", "no"),
    ]:
        assert (full[question].answer, bare[question].answer) == (rich_answer, poor_answer)
    dirty = ENVIRONMENT.model_copy(update={"code": "abc+dirty"})
    units = make_units(("ldn",), range(2), environments={"ldn": dirty})
    assert compare(units).checklist[0].answer == "partly"


def test_a_cost_that_the_seeds_do_not_settle_is_called_unclear() -> None:
    unclear = Interval(mean=1.1, low=0.8, high=1.5, n=3)
    phrase = cost_phrase("ldn", "asha", {"device time": unclear})
    assert phrase == "ldn and asha do not differ clearly in device time (asha needs 1.1× (0.80–1.5) of ldn's)"
    same = Interval(mean=2.0, low=None, high=None, n=3)
    assert cost_phrase("ldn", "asha", {"device time": same}) == "ldn needs 2.0× less device time than asha"
    assert cost_phrase("ldn", "asha", {}) == "no cost was recorded for ldn or asha"


def test_changed_margins_are_taken_at_their_strictest() -> None:
    units = [*make_units(("ldn",), range(2)), *make_units(("grid",), range(2), space=make_space(margins={"ece": 0.5}))]
    comparison = compare(units)
    assert comparison.margins.ece == 0.02
    assert any("margins were changed" in note for note in comparison.notes)


def test_problems_of_reading_are_notes() -> None:
    problem = "left out results/x/grid/seed-1: result.json is damaged"
    assert compare(make_units(("ldn",), range(2)), problems=[problem]).notes[0] == problem


def test_worker_start_is_shown_apart_and_touches_no_ratio() -> None:
    plain = make_units(("ldn", "grid"), range(3))
    started = [
        with_result(unit, worker_start_device_seconds=50.0) if unit.plan.method == "ldn" else unit for unit in plain
    ]
    before, after = compare(plain).search, compare(started).search
    assert before.pairs[0].cost_ratios[DEVICE_SECONDS.key] == after.pairs[0].cost_ratios[DEVICE_SECONDS.key]
    row = after.rows[0]
    assert row.values[WITH_WORKER_START.key].mean == pytest.approx(row.values[DEVICE_SECONDS.key].mean + 50.0)


def test_seeds_of_a_method_that_declare_other_facts_are_refused() -> None:
    """Tables would read one seed's facts and curves another's."""
    first, *rest = make_units(("grid", "ldn"), range(2))
    changed = first.plan.model_copy(update={"facts": first.plan.facts.model_copy(update={"ordered": True})})
    with pytest.raises(UserError, match=r"facts\.ordered: (True / False|False / True)"):
        compare([first.model_copy(update={"plan": changed}), *rest])
    colour = first.plan.model_copy(update={"facts": first.plan.facts.model_copy(update={"colour": "#123456"})})
    assert compare([first.model_copy(update={"plan": colour}), *rest]).methods
    older = first.plan.facts.model_copy(update={"seeded": not first.plan.facts.seeded})  # as read without that fact
    assert compare([first.model_copy(update={"plan": first.plan.model_copy(update={"facts": older})}), *rest]).methods


# --- money ----------------------------------------------------------------------------------------------------------


def test_a_price_makes_the_cost_in_dollars_a_measure_like_the_others() -> None:
    units = [with_result(unit, usd_per_hour=1.8) for unit in make_units(("ldn", "grid"), range(3))]
    comparison = compare(units)
    row = comparison.search.rows[0]
    # 1.80 dollars an hour are 0.0005 dollars a device-second
    assert row.per_seed[USD.key] == pytest.approx([0.0005 * seconds for seconds in row.per_seed[DEVICE_SECONDS.key]])
    [pair] = comparison.search.pairs
    assert pair.cost_ratios[USD.key].mean == pytest.approx(pair.cost_ratios[DEVICE_SECONDS.key].mean)
    costs, ratios, *_ = summary_tables(comparison)
    assert costs.columns[-2:] == ("USD", "÷ grid") and ratios.columns[-1] == "USD"


def test_without_a_price_there_is_no_column() -> None:
    units = make_units(("ldn", "grid"), range(3))
    assert "USD" not in summary_tables(compare(units))[0].columns
    half = [with_result(unit, usd_per_hour=2.0) if unit.plan.method == "ldn" else unit for unit in units]
    assert "USD" not in summary_tables(compare(half))[0].columns  # a price for one side compares nothing


def test_a_quarter_of_a_gpu_costs_a_quarter() -> None:
    [unit] = make_units(("ldn",), [0])
    assert unit.result is not None
    cost = unit.result.cost.model_copy(update={"held_seconds": 7200.0, "devices": 0.25})
    result = unit.result.model_copy(update={"cost": cost, "usd_per_hour": 3.0})
    assert USD.read(Outcome.of_search(result)) == pytest.approx(1.5)  # half a device-hour


# --- divergence and the winner ------------------------------------------------------------------------------------


def test_a_network_far_worse_than_guessing_is_a_note() -> None:
    """Guessing has −log 2 = −0.693 nats here: ten times that is −6.93."""
    units = make_units(("ldn", "grid"), range(3), linear_accuracy=0.8)
    assert not any("diverged" in note for note in compare(units).notes)
    assert not any("diverged" in note for note in compare(with_chosen_log_likelihood(units, "ldn", 1, -6.9)).notes)
    [note] = [note for note in compare(with_chosen_log_likelihood(units, "ldn", 1, -7.0)).notes if "diverged" in note]
    assert note == (
        "ldn: its network diverged on seed 1: a test log-likelihood of −7.00 nats, where guessing the class "
        "frequencies has −0.693."
    )


def test_trials_that_diverged_and_were_not_chosen_are_counted() -> None:
    units = make_units(("ldn", "grid"), range(3), linear_accuracy=0.8)
    grid = next(unit for unit in units if unit.plan.method == "grid" and unit.result)
    assert grid.result
    loser = next(trial for trial in grid.trials if trial.trial_id != grid.result.chosen_trial)
    assert loser.val
    worse = loser.model_copy(update={"val": loser.val.model_copy(update={"log_likelihood": -80.0})})
    trials = tuple(worse if trial is loser else trial for trial in grid.trials)
    units[units.index(grid)] = grid.model_copy(update={"trials": trials})
    assert [note for note in compare(units).notes if "diverged" in note] == [
        "grid: 1 trial diverged (validation log-likelihood below 10 times that of guessing the class frequencies); no "
        "network of theirs was chosen."
    ]


def on_validation(units: list[Unit], method: str) -> dict[int, float]:
    return {u.plan.seed: u.result.val.log_likelihood for u in units if u.plan.method == method and u.result}


def test_the_winner_is_a_seed_of_the_cheapest_that_matches() -> None:
    units = make_units(("ldn", "grid", "asha"), range(12))
    comparison = compare(units)
    able = {
        pair.method: pair.cost_ratios["cost_device_seconds"].mean
        for pair in comparison.search.pairs
        if {said.outcome for said in pair.verdicts.values()} <= {"better", "as good", "slightly worse", "cheaper"}
    }
    expected = max(able, key=lambda method: able[method]) if able else "grid"
    best = on_validation(units, expected)
    assert (comparison.winner.method, comparison.winner.seed) == (expected, max(best, key=lambda seed: best[seed]))
    assert compare(units, "asha").winner == comparison.winner, "whoever it is seen from"


def test_without_anybody_who_matches_it_the_baseline_wins() -> None:
    units = make_units(("ldn", "grid"), range(12), space=make_space(depth={"min": 0, "max": 40, "step": 4}))
    for seed in range(12):
        units = with_chosen_log_likelihood(units, "ldn", seed, -3.0 - 0.1 * seed)
    winner = compare(units).winner
    assert winner.method == "grid" and winner.why.startswith(
        "nothing cheaper is shown to match it (of its seeds the best "
    )


def test_without_a_verdict_the_best_on_validation_wins() -> None:
    units = make_units(("ldn", "grid"), [0])
    best = max(("ldn", "grid"), key=lambda method: on_validation(units, method)[0])
    winner = compare(units).winner
    assert (winner.method, winner.seed) == (best, 0)
    assert winner.why == "the best mean log-likelihood on validation; there is no verdict"
    assert compare(make_units(("ldn",), [3])).winner.seed == 3
