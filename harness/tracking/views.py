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
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from harness import keys
from harness.errors import UserError
from harness.measures import (
    ACCURACY,
    DEPTH,
    DEVICE_SECONDS,
    HEADLINE,
    LOG_LIKELIHOOD,
    POSTERIOR_GAP,
    SIZE,
    TFLOP,
    TRIALS,
)
from harness.text.shown import one_line, redacted, without_secrets
from harness.tracking.address import exclusive

log = logging.getLogger(__name__)

TAG_PREFIX = "mlflow.sharedViewState."
COLUMNS = tuple(f"metrics.`{measure.key}`" for measure in HEADLINE)


@dataclass(frozen=True)
class View:
    id: str
    name: str
    state: Mapping[str, Any]

    def link(self, server: str, experiment_id: str, charts: bool = True) -> str:
        """Charts beside the list of runs, or the table. More in the address would keep the view from applying."""
        mode = "&compareRunsMode=CHART" if charts else ""
        return (
            f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs?workflowType=machine_learning{mode}"
            f"&viewStateShareKey={self.id}"
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


def links(uri: str, server: str, space: str) -> dict[str, str]:
    """What to open at `server`, which shows `uri`: name → address; empty when MLflow does not know the space."""
    try:
        with exclusive(uri):
            client = MlflowClient(uri, registry_uri=uri)
        return _links(client, server, space)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = one_line(without_secrets(str(error), uri), longest=200)
        raise UserError(f"MLflow at {redacted(uri)} cannot be read: {reason}") from None


def _links(client: MlflowClient, server: str, space: str) -> dict[str, str]:
    experiment = client.get_experiment_by_name(space)
    if experiment is None:
        return {}
    found = {view.name: view.link(server, experiment.experiment_id) for view in VIEWS}
    found["Table"] = VIEWS[0].link(server, experiment.experiment_id, charts=False)
    reports = client.search_runs(
        [experiment.experiment_id], f"tags.{keys.TAG_KIND} = '{keys.KIND_REPORT}'", max_results=1
    )
    for run in reports:
        base = f"{server.rstrip('/')}/#/experiments/{experiment.experiment_id}/runs/{run.info.run_id}"
        found["Report"] = f"{base}/artifacts/report.html?workflowType=machine_learning"
    return found


def _packed(state: Mapping[str, Any]) -> str:
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()


# --- charts -------------------------------------------------------------------------------------------------------

_QUALITY, _SIZE, _ANYTIME, _COST, _DEPTH = "quality", "size", "anytime", "cost", "depth"  # sections


def _card(kind: str, section: str, **settings: Any) -> dict[str, Any]:
    shown = settings.get("metricKey") or settings.get("yaxis", {}).get("key", kind)
    return {
        "uuid": f"{section}-{shown}",
        "type": kind,
        "metricSectionId": section,
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
        **settings,
    }


def _scatter(section: str, x: str, y: str) -> dict[str, Any]:
    return _card("SCATTER", section, xaxis={"key": x, "type": "METRIC"}, yaxis={"key": y, "type": "METRIC"})


def _line(section: str, metric: str, x_scale: str = "linear") -> dict[str, Any]:
    return _card(
        "LINE",
        section,
        metricKey=metric,
        selectedMetricKeys=[metric],
        xAxisKey="step",
        selectedXAxisMetricKey="",
        xAxisScaleType=x_scale,
        scaleType="linear",
        range={},
        lineSmoothness=0,
        useGlobalXaxisKey=False,
        useGlobalLineSmoothing=False,
    )


def _bar(section: str, metric: str) -> dict[str, Any]:
    return _card("BAR", section, metricKey=metric)


def _section(uuid: str, name: str, columns: int, open_: bool = True) -> dict[str, Any]:
    shape = {"columns": columns, "cardHeight": 360}
    return {"uuid": uuid, "name": name, "display": open_, "isReordered": True, "isGenerated": False} | shape


_CHARTS = [
    _scatter(_QUALITY, DEVICE_SECONDS.key, ACCURACY.key),
    _scatter(_QUALITY, DEVICE_SECONDS.key, LOG_LIKELIHOOD.key),
    _scatter(_SIZE, SIZE.key, ACCURACY.key),
    _scatter(_SIZE, SIZE.key, LOG_LIKELIHOOD.key),
    _line(_ANYTIME, keys.ANYTIME_VAL_LOG_LIKELIHOOD, "log"),
    _bar(_COST, DEVICE_SECONDS.key),
    _bar(_COST, TFLOP.key),
    _bar(_COST, TRIALS.key),
    _bar(_DEPTH, DEPTH.key),
    _line(_DEPTH, keys.DEPTH_POSTERIOR),
    _line(_DEPTH, keys.DEPTH_VAL_LOG_LIKELIHOOD),
    _line(_DEPTH, keys.DEPTH_TEST_LOG_LIKELIHOOD),
    _bar(_DEPTH, POSTERIOR_GAP.key),
]
_SECTIONS = [
    _section(_QUALITY, "Quality against cost", 2),
    _section(_SIZE, "Quality against size", 2),
    _section(_ANYTIME, "Best so far (step = device-ms)", 1),
    _section(_COST, "Cost", 3),
    _section(_DEPTH, "Depth (step = depth)", 3),
    _section("rest", "Model metrics", 3, open_=False),  # where MLflow itself puts whatever is in no chart above
]
_STATE = {
    "searchFilter": f"tags.{keys.TAG_KIND} = '{keys.KIND_SEARCH}'",
    "orderByKey": f"metrics.`{DEVICE_SECONDS.key}`",
    "orderByAsc": True,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "datasetsFilter": [],
    "selectedColumns": list(COLUMNS),
    "columnOrder": list(COLUMNS),
    "columnWidths": {column: max(80, 7 * len(column) - 35) for column in COLUMNS},
    "compareRunCharts": _CHARTS,
    "compareRunSections": _SECTIONS,
    "isAccordionReordered": True,
    "runsHiddenMode": "SHOW_ALL",
    "hideEmptyCharts": True,
    "groupBy": None,
}
# Not a group of MLflow's: it colours a group by a hash of its name, and other colours live in one browser only.
_MEANS = {"searchFilter": f"tags.{keys.TAG_KIND} = '{keys.KIND_MEAN}'"}
VIEWS = (
    View("one-shot-vs-search", "One-shot vs search", _STATE),
    View("mean-over-seeds", "Mean over seeds", _STATE | _MEANS),
)
