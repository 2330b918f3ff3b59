"""The texts a person reads beside the numbers in MLflow (Markdown)."""

import textwrap
from collections.abc import Sequence

from harness import keys
from harness.comparing.values import Comparison, Recommendation
from harness.measures import DETAILS, HEADLINE, Measure
from harness.schema.records import TrialRecord, Unit
from harness.schema.settings import SearchSpace
from harness.text.shown import code_block, counted, markdown_text

LONGEST_ERROR = 4000  # characters; MLflow cuts tags at 8,000
LONGEST_NOTE = 5000  # of an experiment: MLflow before 3.16 refuses a longer one
LONGEST_DESCRIPTION = 500

_STOPPED = {
    "patience": "no further improvement within the space's patience",
    "cap": "the epoch cap was reached",
    "scheduler": "stopped early by the search's scheduler",
    "failed": "failed; its cost is counted",
}


def experiment_note(space: SearchSpace, model: str, answer: Recommendation | None = None) -> str:
    """`model`: the winner's name in the registry. `answer`: what to do, once there is a comparison; it comes first."""
    depths = space.depth.values
    description = textwrap.shorten(space.description, LONGEST_DESCRIPTION, placeholder=" …")
    always = "\n".join(
        [
            f"**{markdown_text(space.name)}**: {markdown_text(description)}",
            "",
            f"One network that learns its depth (at most {counted(space.depth.max, 'block')}, one training) against "
            f"searches over fixed depths {depths[0]} to {depths[-1]} ({counted(len(depths), 'depth')}). A run named "
            "`method/s<seed>` is one search; the runs nested below it are its trials. When all searches are done, each "
            "method has a run with its means over seeds, and the winner is in the model registry as "
            f"{markdown_text(model)}.",
            "",
            "Open the saved view **One-shot vs search** first, then **Mean over seeds**.",
            "",
            _table(_sentences(*HEADLINE) | keys.CURVES),
        ]
    )
    if answer is None:
        return always
    sentence = f"**{markdown_text(answer.sentence)}**\n\n"
    reasons = "".join(f"- {word}: {markdown_text(text)}\n" for word, text in answer.reasons.items()) + "\n"
    fits = len(sentence + reasons + always) <= LONGEST_NOTE
    return sentence + (reasons if fits else "") + always


def search_note(unit: Unit) -> str:
    plan, result = unit.plan, unit.result
    title = f"**{markdown_text(plan.method)}**, seed {plan.seed}, on {markdown_text(plan.space.name)}."
    if result is None:
        spent = sum(trial.cost.device_seconds for trial in unit.trials)
        return (
            f"{title} **Unfinished**: {len(unit.trials)} of {counted(plan.trials, 'trial')} ended, {spent:.4g} "
            "device-seconds spent so far. Re-run the same command to resume; measures appear when it is done."
        )
    replayed = " Its trials were replayed from recorded ones." if plan.replayed else ""
    capped = " The cost limit ended it before all trials ran." if result.status == "capped" else ""
    outside = "" if result.d_opt_in_range else " This depth is outside the range that fixed-depth searches may train."
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.trials_by_status.items()))
    return "\n".join(
        [
            f"{title} Chose depth {result.d_opt} after {counted(result.trials, 'trial')} ({counts}); the test set was "
            f"opened once after that.{replayed}{capped}{outside}",
            "",
            _table(_sentences(*HEADLINE, *DETAILS)),
        ]
    )


def mean_note(units: Sequence[Unit], comparison: Comparison) -> str:
    said = zip(comparison.search.pairs, comparison.sentences, strict=True)
    verdicts = [markdown_text(sentence) for pair, sentence in said if pair.method == units[0].plan.method]
    plan, seeds = units[0].plan, ", ".join(str(unit.plan.seed) for unit in units)
    return f"**{markdown_text(plan.method)}** on {markdown_text(plan.space.name)}: means over " + " ".join(
        [f"{counted(len(units), 'seed')} ({seeds}).", *verdicts]
    )


def trial_note(trial: TrialRecord) -> str:
    network = (
        f"Learnt depth, up to {counted(trial.depth, 'block')}" if trial.learns_depth else f"Fixed depth {trial.depth}"
    )
    lines = [
        f"{network}, seed {trial.seed}. "
        f"Ended after {counted(trial.cost.epochs, 'epoch')}: {_STOPPED[trial.stop_reason]}.",
        "Curves have step = epoch; `cost/…` is where the trial's device time went.",
    ]
    if len(trial.attempts) > 1:
        lines.append(f"It took {len(trial.attempts)} attempts; the time of all of them is counted.")
    if trial.error:
        lines += ["", code_block(trial.error[-LONGEST_ERROR:])]
    return "\n".join(lines)


def _sentences(*measures: Measure) -> dict[str, str]:
    return {measure.key: measure.says for measure in measures}


def _table(sentences: dict[str, str]) -> str:
    return "\n".join(
        ["| measure | what it says |", "| --- | --- |", *(f"| `{k}` | {v} |" for k, v in sentences.items())]
    )
