"""The second error: all seeds may be tested on the same rows, and other rows would move them together."""

from collections.abc import Iterator, Sequence

import numpy as np

from harness.comparing.finished import Finished
from harness.comparing.numbers import listed
from harness.comparing.values import Pair, Stage
from harness.measures import ACCURACY, LOG_LIKELIHOOD, QUALITIES
from harness.text.shown import counted


def row_errors(pairs: Sequence[tuple[Finished, Finished]]) -> dict[str, float]:
    """Standard errors over test rows of the mean differences, paired by row: s(mean over seeds of a row) / √rows.

    None where a seed has test rows of its own: its error over rows is part of the error over seeds. None either where
    values per row were not kept.
    """
    if not share_their_test_rows([unit for pair in pairs for unit in pair]):
        return {}
    values = [(ours.rows, theirs.rows) for ours, theirs in pairs]
    likelihoods = [a.log_likelihood.astype(float) - b.log_likelihood for a, b in values if a and b]
    correct = [a.correct.astype(float) - b.correct for a, b in values if a and b]
    if not values or len(correct) < len(values) or len(correct[0]) < 2:
        return {}
    return {
        measure.key: float(np.mean(rows, axis=0).std(ddof=1) / np.sqrt(len(rows[0])))
        for measure, rows in ((ACCURACY, correct), (LOG_LIKELIHOOD, likelihoods))
    }


def share_their_test_rows(units: Sequence[Finished]) -> bool:
    hashes = {unit.result.final.test_hash for unit in units}
    return len(hashes) == 1 and None not in hashes


def on_two_errors(stage: Stage, units: Sequence[Finished]) -> Iterator[str]:
    """Which error rules, or why that is not known: one sentence."""
    if any(unit.result.final.test_hash is None for unit in units):
        yield (
            "Intervals cover seeds only, not the choice of test rows: some results come from a version that kept no "
            "values per test row."
        )
    elif not share_their_test_rows(units):
        if len({unit.seed for unit in units}) > 1:
            yield "Every seed has a test set of its own, so intervals over seeds cover the choice of test rows, too."
    elif any(pair.row_errors for pair in stage.pairs):
        yield _which_rules(stage.pairs, units[0].result.final.n_test)
    elif stage.pairs:
        yield "Intervals cover seeds only: the files with values per test row are missing or damaged."


def _which_rules(pairs: Sequence[Pair], rows: int) -> str:
    known = [(pair, each) for pair in pairs for each in QUALITIES if each.key in pair.row_errors]
    larger = [(pair, each) for pair, each in known if pair.rows_rule(each.key)]
    same = f"All seeds were tested on the same {rows:,} rows, so the error over test rows comes on top"
    if not larger:
        return f"{same}; it is the smaller one everywhere. Both are in the table of differences."
    titles = listed(list(dict.fromkeys(each.title for _, each in larger)))
    return (
        f"{same}. It is the larger one in {len(larger)} of {counted(len(known), 'difference')} ({titles}): there more "
        "seeds do not help, more test rows do. Both are in the table of differences."
    )
