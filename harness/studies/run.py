"""A study from its file to its page: planned, trained on the runner that searches use, drawn and judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running.forecast import Forecast, forecast
from harness.running.run import Warn, run_and_tell
from harness.running.runner import make_units
from harness.running.side_by_side import Show
from harness.running.unit import RunningUnit
from harness.studies.conclude import Concluded, conclude
from harness.studies.definition import Study, experiment_name
from harness.studies.words import data_set_of
from harness.text.shown import markdown_text
from harness.tracking.address import Experiment
from harness.tracking.background import Destination


@dataclass(frozen=True)
class StudyOutcome:
    concluded: Concluded | None  # None when it was interrupted
    failures: Mapping[str, str]  # unit, or space that could not be begun → why
    interrupted: int  # by which signal it was told to stop; 0: it was not
    tracked: bool  # whether MLflow was written


@dataclass(frozen=True)
class PlannedStudy:
    """The units of every cell, ready to start. So far nothing was started and nothing written."""

    study: Study
    units: Sequence[RunningUnit]
    options: RunOptions
    tracked_to: Destination
    experiment: Experiment

    def forecast(self) -> Forecast:
        """Of all cells, what is complete included."""
        found = forecast(self.units, self.options.data_dir, self.options.address)
        return replace(found, left_out={**self._broken, **found.left_out})

    @property
    def complete(self) -> int:
        """Units that an earlier run left complete in the results folder: they are not trained again."""
        return 0 if self.options.fresh else sum(unit.folder.is_complete for unit in self.units)

    @property
    def _broken(self) -> dict[str, str]:
        return {data_set_of(base): why for base, why in self.study.broken.items()}

    def start(self, command: str, show: Show | None, warn: Warn) -> StudyOutcome:
        """Trains what is not complete yet, then draws and judges; `command` is printed on the page."""
        for space, why in self._broken.items():
            warn(f"{space} is left out: {why}")
        tracker = self.tracked_to.tracker(self.options.address is not None, self.options.out)
        outcome, tracked = run_and_tell(self.units, self.options, tracker, show, warn)
        concluded = None if outcome.interrupted else conclude(self.study, self.options, command, outcome.failures)
        if concluded and tracked:
            self._log_page(concluded)
        return StudyOutcome(concluded, {**self._broken, **outcome.failures}, outcome.interrupted, tracked)

    def _log_page(self, concluded: Concluded) -> None:
        """The answer comes first in the experiment's note."""
        page, to = concluded.page.read_text(encoding="utf-8"), self.tracked_to
        if concluded.across:
            note = f"**{markdown_text(concluded.across.sentence)}**\n\n{self.experiment.note}"
            to = replace(to, experiment=replace(self.experiment, note=note))
        to.writer().log_report(self.study.cells[0].space, page)


def plan_study(study: Study, options: RunOptions, seeds: int | None = None) -> PlannedStudy:
    """Seeds 0 to `seeds` − 1, or as many as the study's file says."""
    options = options.placed()
    study = replace(study, settings=study.settings.model_copy(update={"seeds": seeds or study.settings.seeds}))
    below = f"studies/{study.folder}"
    where = {"out": options.out / below, "kept_below": below}
    run_options = options.model_copy(update={**where, "replay": study.file.replay})
    spaces = [cell.space for cell in study.cells]
    units = make_units(spaces, parse_methods(study.methods), range(study.settings.seeds), run_options)
    title, paper = markdown_text(study.file.title), markdown_text(study.file.paper)
    note = f"**{title}**. Paper: {paper}. The page with figures and verdicts: run `report`."
    experiment = Experiment(experiment_name(study.name, study.scale), note)
    tracked_to = Destination.of(options, experiment)
    return PlannedStudy(study, units, run_options, tracked_to, experiment)


def studies_in(out: Path) -> list[str]:
    """The names of MLflow's experiments of studies that have a page."""
    pages = sorted(out.glob("studies/*/*/page.html"))
    return [experiment_name(page.parent.name, page.parents[1].name.rpartition("-")[2]) for page in pages]
