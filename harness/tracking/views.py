"""Views preset in the experiment, so that one link opens the table and the charts that answer the question.

MLflow keeps a shared view in an experiment tag. That is not a documented interface (checked with 3.17 in a browser,
tests/tracking/test_browser.py): when it fails, everything but the preset still works.
"""

import base64
import json
import logging
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlflow import MlflowClient

from harness import keys

log = logging.getLogger(__name__)

TAG_PREFIX = "mlflow.sharedViewState."
COLUMNS = (
    *(f"params.`{name}`" for name in ("search", "seed")),
    *(
        f"metrics.`{key}`"
        for key in (
            keys.COST_DEVICE_SECONDS,
            keys.TEST_ACCURACY,
            keys.TEST_LOG_LIKELIHOOD,
            keys.D_OPT,
            keys.TEST_ECE,
            keys.TEST_BRIER,
            keys.COST_TFLOP,
            keys.COST_TRAIN_SECONDS,
            keys.TRIALS,
            keys.WALL_SECONDS,
        )
    ),
)


@dataclass(frozen=True)
class View:
    id: str
    name: str
    state: Mapping[str, Any]

    def link(self, server: str, experiment_id: str) -> str:
        """Charts beside the table. Any other facet in the address would keep the view from applying."""
        return (
            f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
            f"&compareRunsMode=CHART&viewStateShareKey={self.id}"
        )


def write_views(client: MlflowClient, experiment_id: str) -> None:
    try:
        tags = client.get_experiment(experiment_id).tags
        for view in VIEWS:
            state = _packed(view.state)
            tag = f"{TAG_PREFIX}{view.id}"
            if json.loads(tags.get(tag, "{}")).get("state") != state:
                value = {"name": view.name, "createdAt": round(time.time() * 1000), "state": state}
                client.set_experiment_tag(experiment_id, tag, json.dumps(value))
    except Exception:  # the runs are worth writing without it; a dead server shows at the next call
        log.debug("preset views could not be written", exc_info=True)


def links(client: MlflowClient, server: str, space: str) -> dict[str, str]:
    """What to open for a space, name → address; empty when MLflow does not know the space."""
    experiment = client.get_experiment_by_name(space)
    if experiment is None:
        return {}
    found = {view.name: view.link(server, experiment.experiment_id) for view in VIEWS}
    reports = client.search_runs(
        [experiment.experiment_id], f"tags.{keys.TAG_KIND} = '{keys.KIND_REPORT}'", max_results=1
    )
    for run in reports:
        base = f"{server.rstrip('/')}/#/experiments/{experiment.experiment_id}/runs/{run.info.run_id}"
        found["Report"] = f"{base}/artifacts/report.html"
    return found


def _packed(state: Mapping[str, Any]) -> str:
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()


# --- charts -------------------------------------------------------------------------------------------------------

_ANSWER, _DEPTH, _COST = "answer", "depth", "cost"  # sections


def _card(kind: str, section: str, title: str, **settings: Any) -> dict[str, Any]:
    return {
        "uuid": f"{section}-{title}",
        "type": kind,
        "metricSectionId": section,
        "displayName": title,
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
        **settings,
    }


def _scatter(section: str, title: str, x: str, y: str) -> dict[str, Any]:
    axes = {name: {"key": key, "type": "METRIC"} for name, key in (("xaxis", x), ("yaxis", y))}
    return _card("SCATTER", section, title, **axes)


def _line(section: str, title: str, metric: str, x_scale: str) -> dict[str, Any]:
    return _card(
        "LINE",
        section,
        title,
        metricKey=metric,
        selectedMetricKeys=[metric],
        xAxisKey="step",
        useGlobalXaxisKey=False,
        xAxisScaleType=x_scale,
        scaleType="linear",
        lineSmoothness=0,
        useGlobalLineSmoothing=False,
        displayPoints=False,
        selectedXAxisMetricKey="",
        range={},
        yAxisKey="metric",
        yAxisExpressions=[],
    )


def _bar(section: str, title: str, metric: str) -> dict[str, Any]:
    return _card("BAR", section, title, metricKey=metric)


_CHARTS = [
    _scatter(_ANSWER, "Accuracy against cost", keys.COST_DEVICE_SECONDS, keys.TEST_ACCURACY),
    _scatter(_ANSWER, "Log-likelihood against cost", keys.COST_DEVICE_SECONDS, keys.TEST_LOG_LIKELIHOOD),
    _line(_ANSWER, "Anytime: best so far against device-milliseconds", keys.ANYTIME_VAL_LOG_LIKELIHOOD, "log"),
    _bar(_COST, "Cost in device-seconds", keys.COST_DEVICE_SECONDS),
    _bar(_COST, "Cost in TFLOP", keys.COST_TFLOP),
    _bar(_COST, "Trials", keys.TRIALS),
    _bar(_DEPTH, "Chosen depth", keys.D_OPT),
    _line(_DEPTH, "Learnt probability of each depth", keys.DEPTH_POSTERIOR, "linear"),
    _line(_DEPTH, "Test log-likelihood of each depth", keys.DEPTH_TEST_LOG_LIKELIHOOD, "linear"),
]
_SECTIONS = [
    {"uuid": uuid, "name": name, "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    for uuid, name in (
        (_ANSWER, "Is one-shot cheaper, and does it cost quality?"),
        (_COST, "Cost"),
        (_DEPTH, "Depth"),
    )
]
_STATE = {
    "searchFilter": f"tags.{keys.TAG_KIND} = '{keys.KIND_SEARCH}'",
    "orderByKey": f"metrics.`{keys.COST_DEVICE_SECONDS}`",
    "orderByAsc": True,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "datasetsFilter": [],
    "selectedColumns": list(COLUMNS),
    "compareRunCharts": _CHARTS,
    "compareRunSections": _SECTIONS,
    "isAccordionReordered": True,
    "runsHiddenMode": "SHOW_ALL",
    "hideEmptyCharts": True,
    "groupBy": None,
}
VIEWS = (
    View("one-shot-vs-search", "One-shot vs search", _STATE),
    View(
        "mean-over-seeds",
        "Mean over seeds",
        _STATE
        | {
            "groupBy": {
                "aggregateFunction": "average",
                "groupByKeys": [{"mode": "param", "groupByData": "search"}],
            },
            "useGroupedValuesInCharts": True,
        },
    ),
)
