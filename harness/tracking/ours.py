"""What in an MLflow is ours: under which names we write, and how we know an experiment or a registered model again.

An MLflow may be shared. What carries no tag of ours is somebody else's: it is refused in a sentence and never touched.
"""

from dataclasses import dataclass
from typing import Any, Final

from harness import keys
from harness.errors import UserError

SHARED_VIEW: Final = "mlflow.sharedViewState."
OLD_VIEW: Final = f"{SHARED_VIEW}one-shot-vs-search"  # what versions up to 0.2.0 left on every experiment of theirs


@dataclass(frozen=True)
class Names:
    """As they were asked for; None: ours by default, with a prefix."""

    experiment: str | None = None
    model: str | None = None

    def experiment_for(self, name: str) -> str:
        """`name`: of a space or a study."""
        return self.experiment or keys.experiment_name(name)

    def model_for(self, space: str) -> str:
        return self.model or keys.model_name(space)


def find_experiment(client: Any, names: Names, name: str) -> Any | None:
    """MLflow's experiment of a space or a study; None: there is none yet.

    Up to 0.2.0 an experiment had the bare name of its space. One of these goes on being used, unless a name is given or
    one with the prefix is there. UserError where the one that is meant is somebody else's.
    """
    wanted = names.experiment_for(name)
    found = client.get_experiment_by_name(wanted)
    if found is not None:
        if not _is_ours(client, found):
            raise _refused("experiment", wanted, "--experiment")
        return found
    earlier = None if names.experiment else client.get_experiment_by_name(name)
    return earlier if earlier is not None and _is_ours(client, earlier) else None


def _is_ours(client: Any, experiment: Any) -> bool:
    """One of an earlier version has our view, and no run of anybody else's: that version wrote into theirs, too."""
    if keys.TAG_OURS in experiment.tags:
        return True
    if OLD_VIEW not in experiment.tags:
        return False
    token = None
    while True:
        page = client.search_runs([experiment.experiment_id], max_results=1000, page_token=token)
        if not all(keys.TAG_KIND in run.data.tags for run in page):
            return False
        token = page.token
        if not token:
            return True


def check_model(client: Any, names: Names, space: str) -> bool:
    """Whether the registered model of a space is there; UserError where it is somebody else's."""
    name = names.model_for(space)
    found = client.search_registered_models(f"name = '{_quoted(name)}'")
    if found and keys.TAG_OURS not in found[0].tags:
        raise _refused("registered model", name, "--model-name")
    return bool(found)


def _refused(what: str, name: str, flag: str) -> UserError:
    return UserError(
        f"MLflow's {what} {name!r} was not made by this program, so nothing is written there; give another name "
        f"({flag} NAME), or set its tag {keys.TAG_OURS} to any value if it may be used"
    )


def _quoted(name: str) -> str:
    return name.replace("'", "")
