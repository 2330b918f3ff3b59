"""The preset views as they lie in the experiment; test_browser.py looks at them in MLflow's UI."""

import base64
import json
import zlib
from typing import Any

import pytest

from harness import keys
from harness.comparing import compare
from harness.measures import HEADLINE
from harness.tracking.views import TAG_PREFIX, VIEWS, links
from harness.tracking.writer import Tracker
from tests.synthetic import make_space, make_units
from tests.tracking.experiments import experiment_of


def unpacked(value: str) -> dict[str, Any]:
    encoding, _, packed = json.loads(value)["state"].partition(";")
    assert encoding == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def test_views_are_written_with_the_experiment_and_not_again(uri: str) -> None:
    tracker = Tracker(uri)
    experiment_id = experiment_of(tracker)
    tags = tracker.client.get_experiment(experiment_id).tags
    assert {json.loads(tags[f"{TAG_PREFIX}{view.id}"])["name"] for view in VIEWS} == {
        "One-shot vs search",
        "Mean over seeds",
    }
    assert all(len(tags[f"{TAG_PREFIX}{view.id}"]) < 20_000 for view in VIEWS)
    experiment_of(Tracker(uri))
    assert tracker.client.get_experiment(experiment_id).tags == tags


def test_every_name_in_a_view_is_one_that_is_logged(uri: str) -> None:
    """A metric renamed in one place only would leave an empty chart."""
    tracker = Tracker(uri)
    tracker.write_unit(make_units(["ldn"], [0])[0])
    experiment_id = experiment_of(tracker)
    (run,) = tracker.client.search_runs([experiment_id], f"tags.{keys.TAG_KIND} = '{keys.KIND_SEARCH}'")
    state = unpacked(tracker.client.get_experiment(experiment_id).tags[f"{TAG_PREFIX}{VIEWS[0].id}"])
    charted = {
        key
        for chart in state["compareRunCharts"]
        for key in (chart.get("metricKey"), chart.get("xaxis", {}).get("key"), chart.get("yaxis", {}).get("key"))
        if key
    }
    assert charted <= run.data.metrics.keys()
    assert {f"metrics.`{measure.key}`" for measure in HEADLINE} == set(state["selectedColumns"])
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections - {"rest"}
    uuids = [chart["uuid"] for chart in state["compareRunCharts"]]
    assert len(uuids) == len(set(uuids))


def test_where_time_is_contaminated_charts_lead_with_tflop(uri: str) -> None:
    units = make_units(("ldn", "grid", "asha"), range(3), seconds_factor={"grid": 3.0})
    tracker = Tracker(uri)

    def first_chart(experiment_id: str) -> Any:
        tag = tracker.client.get_experiment(experiment_id).tags[f"{TAG_PREFIX}{VIEWS[0].id}"]
        return unpacked(tag)["compareRunCharts"][0]

    assert first_chart(experiment_of(tracker))["xaxis"]["key"] == "cost_device_seconds"
    tracker.conclude(units, compare(units))
    assert tracker.warning is None
    assert first_chart(experiment_of(tracker))["xaxis"]["key"] == "cost_tflop"
    assert first_chart(experiment_of(Tracker(uri)))["xaxis"]["key"] == "cost_tflop", "and stays so"


def test_titles_fit() -> None:
    titles = [chart["displayName"] for view in VIEWS for chart in view.state["compareRunCharts"]]
    assert all(titles) and max(map(len, titles)) <= 40


def test_no_view_groups_runs() -> None:
    """MLflow colours a group by a hash of its name: a method would have another colour than in the report."""
    assert [view.state["groupBy"] for view in VIEWS] == [None, None]
    assert [view.state["searchFilter"] for view in VIEWS] == ["tags.kind = 'search'", "tags.kind = 'mean'"]


def test_a_failing_preset_costs_the_preset_only(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker(uri)
    original = tracker.client.set_experiment_tag

    def refuses_views(experiment_id: str, key: str, value: str) -> None:
        if key.startswith(TAG_PREFIX):
            raise ValueError("tag too long")
        original(experiment_id, key, value)

    monkeypatch.setattr(tracker.client, "set_experiment_tag", refuses_views)
    assert tracker.write_unit(make_units(["ldn"], [0])[0])
    assert tracker.warning is None


def test_links_lead_to_the_views_and_the_report(uri: str) -> None:
    assert links(uri, "http://127.0.0.1:5000/", "synthetic") == {}
    tracker = Tracker(uri)
    experiment_id = experiment_of(tracker)
    tracker.log_report(make_space(), "<p>report</p>")
    found = links(uri, "http://127.0.0.1:5000/", "synthetic")
    assert list(found) == ["One-shot vs search", "Mean over seeds", "Table", "Report"]
    assert found["One-shot vs search"] == (
        f"http://127.0.0.1:5000/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
        "&compareRunsMode=CHART&viewStateShareKey=one-shot-vs-search"
    )
    assert "/artifacts/report.html" in found["Report"]
