"""What to do comes first in every view, in words that a person can act on: five canned results, and the borders."""

import json
from collections.abc import Sequence
from html import unescape
from typing import Any

import pytest

from harness.comparing import compare
from harness.comparing.numbers import duration
from harness.comparing.recommendation import Known, recommend
from harness.comparing.render import as_json, as_markdown
from harness.comparing.sentences import headroom_phrase
from harness.comparing.values import Recommendation
from harness.measures import DEVICE_SECONDS, TFLOP
from harness.reporting.html import _answer
from harness.schema.records import Unit
from harness.tracking.texts import experiment_note
from tests.canned import CANNED, DEEP, METHODS, in_python, in_terminal
from tests.synthetic import make_space, make_units


@pytest.mark.parametrize("name", CANNED)
def test_a_canned_result_gets_the_right_words_first_in_every_view(name: str) -> None:
    canned, sentence = CANNED[name], CANNED[name].sentence
    comparison = compare(canned.units)
    said = comparison.recommendation
    assert (said.action, sentence) == (canned.action, said.sentence)
    assert canned.rests_on in said.rests_on and said.costs
    assert canned.risks in said.risks
    assert len(said.sentence.split()) <= 40 and said.sentence.count(";") == 0, "no list of clauses"

    terminal = " ".join(in_terminal(comparison).replace("│", " ").split())
    report = unescape(" ".join("".join(_answer(comparison)).split()))
    note = experiment_note(canned.units[0].plan.space, "a-model", said).replace("\\", "")
    markdown = as_markdown(comparison).replace("\\", "")
    for view in (terminal, report, note, markdown):
        assert view.index(sentence) < 120, "it leads"
        assert all(text in view for text in said.reasons.values())
    after = report.index("<article") if comparison.search.pairs else len(report)
    assert report.index(said.risks) < after < report.index("<table") < report.index("<details><summary>How verdicts")
    assert Recommendation.model_validate(json.loads(as_json(comparison))["recommendation"]) == said
    results = in_python(canned.units)
    assert results.recommendation() == said and str(results.recommendation()) == sentence
    assert sentence in unescape(results._repr_html_())


@pytest.mark.parametrize("name", CANNED)
def test_a_card_has_one_number_and_no_paragraph(name: str) -> None:
    comparison = compare(CANNED[name].units)
    cards = "".join(_answer(comparison)).split("<article")[1:]
    assert len(cards) == 2 + len(comparison.search.pairs), "the two rules that do not search, then each method"
    for card in cards:
        inside = card.partition("</article>")[0].partition("<details>")[0]
        assert inside.count("<p class=big>") == 1
        [what] = [part.partition("</p>")[0] for part in inside.split("<p class=what>")[1:]]
        assert len(what.split()) == 3
        assert inside.count("<p") == 3 and inside.count('<span class="badge') == 4


# --- the borders ---------------------------------------------------------------------------------------------------


def recommended(units: Sequence[Unit], reference: str | None = None) -> Recommendation:
    return compare(units, reference).recommendation


def test_it_does_not_depend_on_the_reference() -> None:
    units = make_units(METHODS, range(12), space=make_space(depth=DEEP))
    assert recommended(units, "asha") == recommended(units, "grid") == recommended(units)


def test_a_search_over_all_depths_that_pays_alone_is_recommended() -> None:
    said = recommended(make_units(("grid",), range(12), space=make_space(depth=DEEP)))
    assert said.risks == "a cheaper method may match it: none was compared"
    assert said.action == "search" and said.use == "grid"
    assert said.sentence.startswith("Search with grid: it beats ") and "no other method" in said.sentence


def test_better_by_an_open_amount_is_a_risk() -> None:
    """The sign is certain, the margin is not: search, and know what that may be worth."""
    comparison = compare(make_units(("grid",), range(12), space=make_space(depth=DEEP)))
    assert comparison.headroom
    needed = comparison.headroom.model_copy(
        update={"outcome": "search is better", "rule": "the deepest network", "seeds_needed": 30}
    )
    known = Known(
        needed=needed,
        exhaustive="grid",
        stage=comparison.search,
        one_shots=(),
        cost=DEVICE_SECONDS,
        margins=comparison.margins,
        depths=(0, 40),
        spread=comparison.depth_spread,
        seconds_per_seed=None,
    )
    said = recommend(known)
    assert said.sentence.startswith("Search with grid: it beats the deepest network and a random depth")
    assert said.risks == (
        "whether the deepest network is worse by more than the margin is open: about 30 seeds in all (4 in 5) should "
        "tell"
    )


@pytest.mark.parametrize(("gain", "asked"), [(0.0, "the deepest network, at 0.16 of grid's cost,"), (0.004, "ldn,")])
def test_the_question_that_fewest_seeds_answer_comes_first(gain: float, asked: str) -> None:
    """Of the deepest network 38 seeds in all should tell; of ldn more than that, or fewer where it is better."""
    margins = {"accuracy": 0.0015, "log_likelihood": 0.1, "ece": 0.05}
    comparison = compare(make_units(("ldn", "grid"), range(12), space=make_space(margins=margins), ldn_accuracy=gain))
    found = comparison.recommendation
    assert comparison.headroom and comparison.headroom.seeds_needed == 38
    assert found.action == "not decided" and f"should tell whether {asked}" in found.sentence
    if asked == "ldn,":
        assert found.sentence.endswith("matches it; judging the deepest network takes about 38 seeds in all (4 in 5).")
        assert found.rests_on.startswith("12 seeds of ldn: undecided in accuracy, as good in log-likelihood")


def test_what_is_cheaper_and_open_is_named() -> None:
    """The deepest network is not judged yet where asha is: the sentence says so, with its share."""
    comparison = compare(noisy_deepest())
    said = comparison.recommendation
    assert comparison.headroom and comparison.headroom.outcome == "not decided"
    assert said.action == "search" and said.sentence.endswith("would do as well is not decided.")
    assert "Whether the deepest network (0.1" in said.sentence


def noisy_deepest() -> list[Unit]:
    """The deepest network is worse on some seeds by more than the margin, and better on others."""
    units = make_units(("grid", "asha"), range(12))
    changed = []
    for unit in units:
        assert unit.result
        final = unit.result.final
        tests = tuple(
            each.model_copy(
                update={
                    "measures": each.measures.model_copy(
                        update={"log_likelihood": each.measures.log_likelihood + 0.2 * (-1) ** unit.plan.seed}
                    )
                }
            )
            if each.depth == 10 and unit.result.d_opt != 10
            else each
            for each in final.per_depth_test
        )
        result = unit.result.model_copy(update={"final": final.model_copy(update={"per_depth_test": tests})})
        changed.append(unit.model_copy(update={"result": result}))
    return changed


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"methods": ("ldn",)}, "Not decided whether to search: no method here trained every depth; add one that does"),
        ({"methods": ("ldn", "grid"), "failed_depths": {"grid": [3]}}, "Not decided whether to search: on no seed has"),
        ({"seeds": [0]}, "Not decided: 7 more seeds, about 62 seconds, are the fewest that can tell whether"),
        ({"space": make_space(depth={"min": 4, "max": 4})}, "Train 4 blocks: the space has no other depth"),
    ],
)
def test_what_cannot_be_said_is_said_plainly(changes: dict[str, Any], begins: str) -> None:
    said = recommended(make_units(**{"methods": METHODS, "seeds": range(3), **changes}))
    assert said.sentence.startswith(begins)
    assert said.rests_on and said.costs and said.risks
    assert not any(text[0].isupper() for text in said.reasons.values())
    assert "4 in 5" not in said.costs, "the fewest seeds that can tell are not those that should"


def test_shares_are_of_the_cost_that_leads() -> None:
    comparison = compare(make_units(METHODS, range(12)))
    assert comparison.headroom
    said = {cost.key: headroom_phrase(comparison.headroom, cost) for cost in (DEVICE_SECONDS, TFLOP)}
    assert "of grid's cost, " in said[DEVICE_SECONDS.key] and "of grid's TFLOP, " in said[TFLOP.key]


def test_no_winner_contradicts_it() -> None:
    winner = compare(make_units(METHODS, range(12))).winner
    assert "nothing cheaper" not in winner.why and "the deepest network is as good" in winner.why


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 second"), (62, "62 seconds"), (1200, "20 minutes"), (9000, "2 hours"), (200_000, "2.3 days")],
)
def test_durations_are_rough(seconds: float, said: str) -> None:
    assert duration(seconds) == said
