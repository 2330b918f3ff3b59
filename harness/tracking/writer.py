"""Writes units into MLflow, each run once. A server that fails costs one warning and never a run."""

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from harness import keys
from harness.comparing.costs import leading_cost
from harness.comparing.values import Comparison, Recommendation
from harness.errors import UserError
from harness.schema.records import Unit
from harness.schema.settings import SearchSpace
from harness.scratch import scratch_folder
from harness.text.shown import one_line, redacted, without_secrets
from harness.tracking import models
from harness.tracking.address import Experiment, check_uri, exclusive, sqlite_file
from harness.tracking.content import RunContent, mean_content, search_content, trial_content, unit_key
from harness.tracking.empty_database import fill_if_empty
from harness.tracking.models import FindModel
from harness.tracking.ours import Names, check_model, find_experiment
from harness.tracking.texts import experiment_note
from harness.tracking.views import write_views

log = logging.getLogger(__name__)
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # an outage is told once, by us
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # so is a database that cannot be written
T = TypeVar("T")
OUR_NAMES = Names()
ALIAS = "winner"  # models:/depth-search-<space>@winner


@dataclass(frozen=True)
class Synced:
    """What `sync` did. `warning` is a sentence when MLflow could not be written; the rest is still to come then."""

    written: int
    unchanged: int
    warning: str | None


class Tracker:
    """The one writer of MLflow, used in the parent process, outside every trial's time.

    No method raises for what a server does: the first failure is logged as one warning, kept in `warning`, and makes
    every later call do nothing, so that an outage is paid for once. `sync` completes what is missing.
    """

    def __init__(self, uri: str, experiment: Experiment | None = None, names: Names = OUR_NAMES) -> None:
        """`experiment`: one for units of all spaces, as a study has it; without it each space has its own."""
        self.uri, self._names = check_uri(uri), names
        self._one_for_all = experiment
        self.warning: str | None = None
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}

    def check_names(self, space: str) -> None:
        """UserError where the experiment or the model that we would write to is somebody else's."""
        with contextlib.suppress(MlflowException, SQLAlchemyError, OSError), exclusive(self.uri):
            check_model(self.client, self._names, space)
            find_experiment(self.client, self._names, space)

    def open(self) -> None:
        """Makes ready what the first unit would wait for: a fresh sqlite file gets its tables."""
        self._guarded(lambda: self.client, None)

    def write_unit(self, unit: Unit, model: FindModel | None = None) -> bool:
        """Brings MLflow up to date with a unit; True when something had to be written. One without trials has to wait.

        `model` finds the unit's `model.pt`, None when there is none; it is asked only while that is not logged yet.
        """
        return self._guarded(lambda: self._write_unit(unit, model), False)

    def conclude(self, units: Sequence[Unit], comparison: Comparison) -> None:
        """What all finished units of a space say together: each method's means over seeds with its verdicts, the
        winner, and what to do, which the experiment's note begins with.

        Its model becomes a version of the space's registered model, with the alias `winner`.
        """
        self._guarded(lambda: self._conclude(units, comparison), None)

    def log_report(self, space: SearchSpace, html: str) -> None:
        """Puts `report.html` under the run "report" of the space's experiment; a newer report replaces it."""
        self._guarded(lambda: self._log_report(space, html), None)

    # --- one warning ----------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], T], otherwise: T) -> T:
        if self.warning:
            return otherwise
        try:
            with exclusive(self.uri):
                return work()
        except UserError as refusal:
            self.warning = f"{refusal}; the results are safe on disk, and `harness sync` writes them elsewhere"
            log.warning(self.warning)
            return otherwise
        except Exception as error:  # whatever a server, a driver or a disk comes up with: the run matters more
            self.warning = (
                f"MLflow at {redacted(self.uri)} could not be written ({_in_short(error, self.uri)}); the results are "
                "safe on disk, and `harness sync` completes MLflow later."
            )
            log.warning(self.warning)
            log.debug("tracking failed: %s", without_secrets(traceback.format_exc(), self.uri))
            return otherwise

    @property
    def client(self) -> MlflowClient:
        if self._client is None:  # opening it creates the tables of a fresh sqlite file: only under the lock
            if database := sqlite_file(self.uri):
                fill_if_empty(database)
            self._client = MlflowClient(self.uri, registry_uri=self.uri)
        return self._client

    # --- experiment -----------------------------------------------------------------------------------------------

    def _experiment(self, space: SearchSpace) -> str:
        wanted = self._one_for_all or Experiment(space.name, self._note(space))
        if wanted.name not in self._experiments:
            if not self._one_for_all:
                check_model(self.client, self._names, space.name)
            experiment_id = self._find_or_create(wanted.name)
            known = self.client.get_experiment(experiment_id).tags
            tags = {
                keys.TAG_OURS: wanted.name,
                "mlflow.note.content": wanted.note,
                "mlflow.experimentKind": "custom_model_development",  # opens on the runs, not on LLM traces
            }
            for key, value in tags.items():
                if not known.get(key, "").endswith(value):  # a note may begin with the answer: see `_conclude`
                    self.client.set_experiment_tag(experiment_id, key, value)
            write_views(self.client, experiment_id)
            self._experiments[wanted.name] = experiment_id
        return self._experiments[wanted.name]

    def _note(self, space: SearchSpace, answer: Recommendation | None = None) -> str:
        return experiment_note(space, self._names.model_for(space.name), answer)

    def _find_or_create(self, name: str) -> str:
        """`name`: of the space or the study."""
        experiment = find_experiment(self.client, self._names, name)
        if experiment is None:
            database, ours = sqlite_file(self.uri), self._names.experiment_for(name)
            # Absolute, or a process started elsewhere would look for the artifacts in its own folder.
            location = str(database.parent / "mlflow-artifacts" / ours) if database else None
            with contextlib.suppress(MlflowException):  # another process was quicker; looked up below
                return str(self.client.create_experiment(ours, location, {keys.TAG_OURS: name}))
            experiment = find_experiment(self.client, self._names, name)
            if experiment is None:
                raise RuntimeError(f"experiment {ours!r} can neither be found nor created")
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    # --- units ----------------------------------------------------------------------------------------------------

    def _write_unit(self, unit: Unit, model: FindModel | None) -> bool:
        if not unit.trials:
            return False
        experiment_id = self._experiment(unit.plan.space)
        content = self._named(unit, search_content(unit))
        known = self._runs_of(experiment_id, unit_key(unit))
        parent = known.pop(content.key, None)
        if parent and _shows(parent, content):
            return self._log_model(unit, parent, model)
        parent = self._open(experiment_id, content, parent, {})
        below = {"mlflow.parentRunId": parent.info.run_id}
        for index in range(len(unit.trials)):
            child_content = self._named(unit, trial_content(unit, index))
            child = known.pop(child_content.key, None)
            if child and _shows(child, child_content):
                self._set_tags(child, below)
            else:
                self._fill(self._open(experiment_id, child_content, child, below), child_content)
        for orphan in known.values():  # a trial that the records no longer know
            self._supersede(orphan)
        self.client.log_inputs(parent.info.run_id, datasets=_datasets(unit))
        self._fill(parent, content)
        self._log_model(unit, parent, model)
        return True

    def _named(self, unit: Unit, content: RunContent) -> RunContent:
        """Where an experiment holds units of several spaces, a run's name says of which."""
        return replace(content, name=f"{unit.plan.space.name} {content.name}") if self._one_for_all else content

    def _runs_of(self, experiment_id: str, key: str) -> dict[str, Run]:
        """Runs of a unit by their own key. Of two with one key (a request repeated after a timeout) one goes."""
        found: dict[str, Run] = {}
        for run in self._search(experiment_id, f"tags.`{keys.TAG_UNIT_KEY}` LIKE '{_pattern(key)}%'"):
            own_key = run.data.tags[keys.TAG_UNIT_KEY]
            if own_key != key and not own_key.startswith(f"{key}/"):
                continue
            twin = found.setdefault(own_key, run)
            if twin is not run:
                found[own_key], surplus = sorted((twin, run), key=_fuller_first)
                self.client.delete_run(surplus.info.run_id)
        return found

    def _search(self, experiment_id: str, query: str) -> Iterator[Run]:
        token: str | None = None
        while True:
            page = self.client.search_runs([experiment_id], query, max_results=1000, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _open(self, experiment_id: str, content: RunContent, run: Run | None, extra: Mapping[str, str]) -> Run:
        """A run to fill, RUNNING until it is: the one that was left half-written or unfinished, else a new one."""
        tags = {**content.tags, **extra, keys.TAG_FINGERPRINT: content.fingerprint}
        if run and run.data.metrics and run.data.tags.get(keys.TAG_FINGERPRINT) != content.fingerprint:
            self._supersede(run)  # it shows other records, and MLflow's metrics cannot be taken back
            run = None
        if run:
            self.client.update_run(run.info.run_id, status="RUNNING")
            self._set_tags(run, tags)
            return run
        return self.client.create_run(experiment_id, content.start_ms or None, tags, content.name)

    def _supersede(self, run: Run) -> None:
        """Takes a run out of the comparison without deleting it: on a shared server it may be somebody else's."""
        self.client.delete_tag(run.info.run_id, keys.TAG_UNIT_KEY)
        self._set_tags(run, {keys.TAG_KIND: keys.KIND_SUPERSEDED})
        self.client.update_run(run.info.run_id, name=f"{run.info.run_name} (superseded)")

    def _fill(self, run: Run, content: RunContent) -> None:
        """One call holds it all: thinned curves stay far below MLflow's limit of 1,000 points, 100 params."""
        run_id = run.info.run_id
        metrics = [Metric(each.key, each.value, each.timestamp_ms, each.step) for each in content.points]
        self.client.log_batch(run_id, metrics, [Param(key, value) for key, value in content.params.items()])
        self.client.set_terminated(run_id, content.status, content.end_ms or None)

    def _set_tags(self, run: Run, tags: Mapping[str, str]) -> None:
        changed = [RunTag(key, value) for key, value in tags.items() if run.data.tags.get(key) != value]
        if changed:
            self.client.log_batch(run.info.run_id, tags=changed)

    def _log_model(self, unit: Unit, parent: Run, model: FindModel | None) -> bool:
        if model is None or unit.result is None or keys.TAG_MODEL in parent.data.tags:
            return False
        with scratch_folder() as folder:  # not a copy of a large network in /tmp after each kill
            path = folder / "model"
            try:
                found = model(unit)
                if found is None:
                    return False
                models.save(found, path)
            except Exception as error:  # a file that cannot be read: MLflow itself is well, so go on with it
                log.warning("the model of %s is not logged to MLflow: %s", unit_key(unit), _in_short(error, self.uri))
                return False
            uri = models.upload(self.client, parent, models.name_of(unit.plan), path)
            self._set_tags(parent, {keys.TAG_MODEL: uri})
        return True

    # --- all units together ---------------------------------------------------------------------------------------

    def _conclude(self, units: Sequence[Unit], comparison: Comparison) -> None:
        space, winner = units[0].plan.space, comparison.winner
        experiment_id = self._experiment(space)
        if not self._one_for_all:
            note = self._note(space, comparison.recommendation)
            self.client.set_experiment_tag(experiment_id, "mlflow.note.content", note)
        write_views(self.client, experiment_id, leading_cost(comparison.contamination))
        for method in dict.fromkeys(unit.plan.method for unit in units):
            content = mean_content([unit for unit in units if unit.plan.method == method], comparison)
            run = self._runs_of(experiment_id, content.key).get(content.key)
            if not run or not _shows(run, content):
                self._fill(self._open(experiment_id, content, run, {}), content)
        key = f"{space.name}/{winner.method}/seed-{winner.seed}"
        run = self._runs_of(experiment_id, key).get(key)
        if run and keys.TAG_MODEL in run.data.tags:
            self._register(space.name, run, f"A seed of {winner.method} (seed {winner.seed}), {winner.why}.")

    def _register(self, space: str, run: Run, why: str) -> None:
        name = self._names.model_for(space)
        if not check_model(self.client, self._names, space):
            said = f"Networks that won on the search space {space}."
            with contextlib.suppress(MlflowException):  # another process was quicker
                self.client.create_registered_model(name, {keys.TAG_OURS: space}, said)
            check_model(self.client, self._names, space)
        uri = run.data.tags[keys.TAG_MODEL]
        model = self.client.get_logged_model(uri.removeprefix("models:/"))
        known = self.client.search_model_versions(f"name = '{name}'")
        version = next((each for each in known if each.tags.get(keys.TAG_MODEL) == uri), None)
        if version is None:
            # By its place: with the URI MLflow would look for the model in the process-wide store.
            tags, place = {keys.TAG_MODEL: uri}, model.artifact_location
            version = self.client.create_model_version(
                name, place, run.info.run_id, tags, description=why, model_id=model.model_id
            )
        self.client.set_registered_model_alias(name, ALIAS, version.version)

    # --- report ---------------------------------------------------------------------------------------------------

    def _log_report(self, space: SearchSpace, html: str) -> None:
        experiment_id = self._experiment(space)
        name = self._one_for_all.name if self._one_for_all else space.name
        key = f"{name}/report"
        tags = {
            keys.TAG_KIND: keys.KIND_REPORT,
            keys.TAG_SPACE: name,
            keys.TAG_UNIT_KEY: key,
            "mlflow.note.content": "The comparison as one page: Artifacts → report.html.",
        }
        run = self._runs_of(experiment_id, key).get(key) or self.client.create_run(experiment_id, None, tags, "report")
        with scratch_folder() as folder:
            path = folder / "report.html"
            path.write_text(html, encoding="utf-8")
            self.client.log_artifact(run.info.run_id, str(path))
        if run.info.status == "RUNNING":
            self.client.set_terminated(run.info.run_id, "FINISHED")


def sync(units: Iterable[Unit], uri: str, model: FindModel | None = None, names: Names = OUR_NAMES) -> Synced:
    """Writes what MLflow lacks. Running it again changes nothing."""
    tracker = Tracker(uri, names=names)
    written = unchanged = 0
    for unit in units:
        if tracker.write_unit(unit, model):
            written += 1
        elif tracker.warning is None:
            unchanged += 1
    return Synced(written, unchanged, tracker.warning)


def _shows(run: Run, content: RunContent) -> bool:
    return (
        run.data.tags.get(keys.TAG_FINGERPRINT) == content.fingerprint
        and run.info.status == content.status
        and run.data.tags.get(keys.TAG_UNIT_KEY) == content.key
    )


def _fuller_first(run: Run) -> tuple[bool, int, str]:
    """Two writers that see the same two runs keep the same one."""
    return run.info.status == "RUNNING", -len(run.data.metrics), str(run.info.run_id)


def _in_short(error: Exception, uri: str) -> str:
    return one_line(without_secrets(str(error), uri), longest=200) or type(error).__name__


def _pattern(key: str) -> str:
    """A LIKE pattern that cannot end the quoted string: `_` stands for any character, the exact check follows."""
    return key.replace("'", "_").replace("\\", "_")


def _datasets(unit: Unit) -> list[DatasetInput]:
    data = unit.plan.space.data
    source = data.model_dump_json()
    return [
        DatasetInput(
            Dataset(name=data.kind, digest=digest, source_type="harness", source=source),
            [InputTag("mlflow.data.context", "train + validation")],
        )
        for digest in sorted({trial.split_hash for trial in unit.trials})
    ]
