"""The results of one space, read from disk and compared: what `harness.run` and `harness.load_results` return."""

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError, full_disk_told, nearest
from harness.measures import HEADLINE
from harness.methods import parse_methods
from harness.options import DEFAULT_OUT, RunOptions
from harness.schema.records import Looks, Unit
from harness.schema.settings import SearchSpace
from harness.spaces import known_spaces, load_space
from harness.text.files import checked_path, write_atomically
from harness.text.shown import counted, html_text

if TYPE_CHECKING:
    import pandas as pd

    from harness.comparing import Comparison
    from harness.comparing.values import Recommendation
    from harness.training.predict import Predictor

Space = SearchSpace | str | Path  # a space, its name, or a .yaml file
Folder = Path | str


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """Everything in the results folder of one space, read once and compared once. A notebook shows it as a table."""

    space: str
    out: Path
    units: tuple[Unit, ...]  # method × seed, unfinished ones included
    reference: str | None = None  # that the others are compared with; None: the first one that learns its depth
    problems: tuple[str, ...] = ()  # a sentence for every unit that could not be read
    looks: Looks = field(default_factory=Looks)  # at how many seeds verdicts are looked at
    failures: Mapping[str, str] = field(default_factory=dict)  # of the run that gave these results: unit → why
    unfinished: tuple[str, ...] = ()  # units that it left without a result: cost limit, or interrupted
    interrupted: int = 0  # by which signal it was told to stop; 0: it was not
    tracked: bool = False  # whether it wrote its units to MLflow
    warnings: tuple[str, ...] = ()  # of it: MLflow could not be written, for example

    @property
    def finished(self) -> tuple[Unit, ...]:
        return tuple(unit for unit in self.units if unit.result)

    @functools.cached_property
    def comparison(self) -> "Comparison":
        """Cost and quality of the methods, paired by seed, with intervals and verdicts."""
        from harness.comparing import compare

        return compare(self.units, self.reference, problems=self.problems, looks=self.looks)

    def recommendation(self) -> "Recommendation":
        """What to do, and what that rests on, costs and risks: `print` it for the sentence."""
        return self.comparison.recommendation

    def against(self, reference: str | None) -> "Results":
        """The same results, compared with another reference."""
        return self if reference in (None, self.reference) else replace(self, reference=reference)

    def priced(self, usd_per_hour: float | None) -> "Results":
        """The same results at this price of a device-hour; None leaves the prices that they were run with."""
        RunOptions.of(usd_per_hour=usd_per_hour)
        if usd_per_hour is None:
            return self
        price = {"usd_per_hour": usd_per_hour}
        results = [unit.result and unit.result.model_copy(update=price) for unit in self.units]
        units = [unit.model_copy(update={"result": result}) for unit, result in zip(self.units, results, strict=True)]
        return replace(self, units=tuple(units))

    def frame(self) -> "pd.DataFrame":
        """One row for every finished method × seed, with its cost and its test measures."""
        from harness.reporting.frames import unit_frame

        return unit_frame(self.units)

    def trials(self) -> "pd.DataFrame":
        """One row for every trial, failed and early-stopped ones included."""
        from harness.reporting.frames import trial_frame

        return trial_frame(self.units)

    def verdicts(self) -> "pd.DataFrame":
        """One row for every pair of methods and measure: is the first worse, and by more than the margin?"""
        from harness.reporting.frames import verdict_frame

        return verdict_frame(self.comparison)

    def model(self, method: str, seed: int = 0, *, trust_code: bool = False) -> "Predictor":
        """The network that a method chose on a seed; it predicts from rows as they are in the data set.

        A one-shot method of your own is given as its file ("mine.py"), in a session that has not run it.
        """
        from harness.running.store import UnitFolder
        from harness.training.predict import Predictor

        if ".py" in method:  # a one-shot network of the user's own needs its file to be built
            [method] = parse_methods(method)
        results = [unit.result for unit in self.finished if (unit.plan.method, unit.plan.seed) == (method, seed)]
        path = UnitFolder(self.out, self.space, method, seed).model(next(iter(results), None))
        if path is None:
            have = [f"{unit.plan.method} seed {unit.plan.seed}" for unit in self.finished]
            raise UserError(f"{method} seed {seed} has no model in {self.out}; valid: {', '.join(have) or 'none yet'}")
        return Predictor.load(path, trust_code=trust_code)

    def winner(self) -> "Predictor":
        """The network to take home; `comparison.winner` says whose it is, and why."""
        winner = self.comparison.winner
        return self.model(winner.method, winner.seed)

    @functools.cached_property
    def html(self) -> str:
        """The report: one HTML page with figures, tables and the verdict."""
        from harness.reporting.html import build_report

        return build_report(self.units, self.comparison)

    def report(self, path: Folder | None = None) -> Path:
        """Writes the report, into the results folder unless a path is given; returns where it is."""

        target = Path(path) if path else self.out / self.space / "report.html"
        html = self.html
        try:
            with full_disk_told(target):
                write_atomically(target, html)
        except OSError as error:
            raise UserError(f"the report {target} cannot be written: {error.strerror}") from None
        return target

    def _counts(self) -> str:
        seeds: dict[str, int] = {}
        for unit in self.finished:
            seeds[unit.plan.method] = seeds.get(unit.plan.method, 0) + 1
        return ", ".join(f"{method} on {counted(n, 'seed')}" for method, n in seeds.items()) or "none yet"

    @property
    def went_wrong(self) -> list[str]:
        """A sentence for each thing in this run that did not go as asked."""
        stopped = ["the run was interrupted; the same call resumes it"] if self.interrupted else []
        failed = [f"{unit} failed: {why}" for unit, why in self.failures.items()]
        capped = [f"{unit} has no result: the cost limit was reached first" for unit in self.unfinished]
        return [*stopped, *failed, *([] if self.interrupted else capped), *self.warnings, *self.problems]

    def __repr__(self) -> str:
        wrong = "".join(f"; {sentence}" for sentence in self.went_wrong)
        return f"<Results of {self.space} in {self.out}: {self._counts()}{wrong}>"

    def _repr_html_(self) -> str:
        try:
            headline = self.comparison.recommendation.sentence
        except UserError as error:  # nothing finished, or mixed settings: the rows are still there to be looked at
            headline = str(error)
        shown = ["method", "seed", *(measure.key for measure in HEADLINE)]
        table = self.frame()[shown].to_html(index=False, float_format="{:.4g}".format)
        wrong = "".join(f"<li>{html_text(sentence)}</li>" for sentence in self.went_wrong)
        wrong = f"<ul>{wrong}</ul>" if wrong else ""
        return f"<p><b>{html_text(self.space)}</b>: {html_text(headline)}</p>{wrong}{table}"


def load(space: Space, out: Folder, reference: str | None, known: Sequence[Unit] = ()) -> Results:
    """`known` units need not be read again."""
    from harness.running.store import read_looks, read_units

    name, folder = name_of(space), checked_path(out, "out")
    units, problems = read_units(folder, name, known)
    if not units:
        raise UserError(no_results(space, folder) + (f" ({'; '.join(problems)})" if problems else ""))
    return Results(name, folder, tuple(units), reference, tuple(problems), read_looks(folder, name))


def finished_seeds(out: Path, space: str) -> set[str]:
    folders = [path.parent.name for path in (out / space).glob("*/seed-*/result.json")]
    return {name for name in folders if ".moved-" not in name}


def methods_in(folder: Path) -> list[str]:
    """The methods that have results of a space."""
    return sorted({path.parents[1].name for path in folder.glob("*/seed-*/plan.json")})


def check_reference(reference: str | None, methods: Sequence[str]) -> None:
    """Before a run: a typing mistake must not be found out after it."""
    if reference is not None and reference not in methods:
        raise UserError(
            f"the reference must be a method with results; got {reference!r}, {nearest(reference, methods)}"
        )


def spaces_in(out: Path, may_be_none: bool = False) -> list[str]:
    """The spaces that have results."""
    found = sorted({path.parents[2].name for path in out.glob("*/*/seed-*/plan.json")})
    if not found and not may_be_none:
        raise UserError(f"there are no results in {out}; {_remedy('quickstart', out)}")
    return found


def _remedy(space: str, out: Path) -> str:
    where = "" if out == DEFAULT_OUT else f" --out {shlex.quote(str(out))}"
    return f"`harness run {shlex.quote(space)}{where}` makes some"


def name_of(space: Space) -> str:
    """A space goes by its name in the results, also when it is given as a file."""
    if isinstance(space, SearchSpace):
        return space.name
    checked_path(space, "a search space")
    if not _is_file(space):
        return str(space)
    return load_space(str(space)).name if Path(space).exists() else Path(space).stem


def _is_file(space: Path | str) -> bool:
    return str(space).endswith((".yaml", ".yml"))


def no_results(space: Space, out: Path) -> str:
    name, there = name_of(space), spaces_in(out, may_be_none=True)
    runs = not isinstance(space, SearchSpace) and (_is_file(space) or name in known_spaces())
    known = bool(there) and not runs
    remedy = f" ({nearest(name, there)})" if known else f"; {_remedy(str(space) if runs else 'quickstart', out)}"
    return f"there are no results of {name!r} in {out}{remedy}"
