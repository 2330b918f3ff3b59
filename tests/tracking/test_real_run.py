"""A real study and MLflow: the tree is complete, an outage costs a warning, and writing again adds nothing."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from harness import keys
from harness.measures import HEADLINE
from harness.running.store import read_units
from harness.tracking.server import serving
from tests.running.results import command
from tests.tracking.test_server import free_port


def counts(uri: str, space: str) -> dict[str, int]:
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name(f"depth-search/{space}")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    assert not [run.info.run_name for run in runs if run.info.status == "RUNNING"]
    kinds = [run.data.tags[keys.TAG_KIND] for run in runs]
    for run in runs:
        if run.data.tags[keys.TAG_KIND] == keys.KIND_SEARCH:
            assert run.data.metrics.keys() >= {measure.key for measure in HEADLINE}
    return {kind: kinds.count(kind) for kind in set(kinds)}


@pytest.mark.slow
def test_a_server_that_is_gone_when_the_run_writes_costs_a_warning_and_sync_completes(
    one_ray: None, tmp_path: Path
) -> None:
    database, port = f"sqlite:///{tmp_path / 'server.db'}", free_port()
    # A local run writes at its end, when its trials are over: a server killed before that is one that is not there.
    address = f"http://127.0.0.1:{port}"
    words = ("run", "quickstart", "--methods", "ldn,random_search", "--epochs", "40", "--workers", "1")
    done = command(tmp_path, *words, "--tracking-uri", address)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning") == 1 and "harness sync" in done.stderr
    units, problems = read_units(tmp_path / "results", "quickstart")
    assert len(units) == 2 and not problems

    (tmp_path / "server.db").touch()
    with serving(database, port) as served:
        assert served == address
        assert command(tmp_path, "sync", "--tracking-uri", address).returncode == 0
        trials = sum(len(unit.trials) for unit in units)
        wanted = {keys.KIND_SEARCH: 2, keys.KIND_TRIAL: trials, keys.KIND_REPORT: 1, keys.KIND_MEAN: 2}
        assert counts(address, "quickstart") == wanted
        assert command(tmp_path, "sync", "--tracking-uri", address).returncode == 0
        assert command(tmp_path, *words, "--tracking-uri", address).returncode == 0  # finished units are skipped
        assert counts(address, "quickstart") == wanted
