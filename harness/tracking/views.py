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
    Measure,
)
from harness.text.shown import one_line, redacted, without_secrets
from harness.tracking.address import exclusive
from harness.tracking.ours import SHARED_VIEW, Names, find_experiment

log = logging.getLogger(__name__)

OUR_NAMES = Names()
TAG_PREFIX = SHARED_VIEW
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


def write_views(client: MlflowClient, experiment_id: str, cost: Measure | None = None) -> None:
    """`cost`: that leads. None: nobody has compared yet, so views that are there stay as they are."""
    try:
        tags = client.get_experiment(experiment_id).tags
        for view in views(cost or DEVICE_SECONDS):
            if cost is None and f"{TAG_PREFIX}{view.id}" in tags:
                continue
            state = _packed(view.state)
            tag = f"{TAG_PREFIX}{view.id}"
            if json.loads(tags.get(tag, "{}")).get("state") != state:
                value = {"name": view.name, "createdAt": round(time.time() * 1000), "state": state}
                client.set_experiment_tag(experiment_id, tag, json.dumps(value))
    except Exception:  # the runs are worth writing without it; a dead server shows at the next call
        log.debug("preset views could not be written", exc_info=True)


def links(uri: str, server: str, space: str, names: Names = OUR_NAMES) -> dict[str, str]:
    """What to open at `server`, which shows `uri`: name → address; empty when MLflow does not know the space."""
    try:
        with exclusive(uri):
            client = MlflowClient(uri, registry_uri=uri)
        return _links(client, server, space, names)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = one_line(without_secrets(str(error), uri), longest=200)
        raise UserError(f"MLflow at {redacted(uri)} cannot be read: {reason}") from None


def _links(client: MlflowClient, server: str, space: str, names: Names) -> dict[str, str]:
    experiment = find_experiment(client, names, space)
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


def _card(kind: str, section: str, title: str, **settings: Any) -> dict[str, Any]:
    shown = settings.get("metricKey") or settings.get("yaxis", {}).get("key", kind)
    return {
        "displayName": title,
        "uuid": f"{section}-{shown}",
        "type": kind,
        "metricSectionId": section,
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
        **settings,
    }


def _scatter(section: str, x: Measure, y: Measure) -> dict[str, Any]:
    axes = {"xaxis": {"key": x.key, "type": "METRIC"}, "yaxis": {"key": y.key, "type": "METRIC"}}
    return _card("SCATTER", section, f"{y.title} against {x.title}", **axes)


def _line(section: str, metric: str, title: str, x_scale: str = "linear") -> dict[str, Any]:
    return _card(
        "LINE",
        section,
        title,
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


def _bar(section: str, measure: Measure) -> dict[str, Any]:
    return _card("BAR", section, measure.title, metricKey=measure.key)


def _section(uuid: str, name: str, columns: int, open_: bool = True) -> dict[str, Any]:
    shape = {"columns": columns, "cardHeight": 360}
    return {"uuid": uuid, "name": name, "display": open_, "isReordered": True, "isGenerated": False} | shape


def _charts(cost: Measure) -> list[dict[str, Any]]:
    other = TFLOP if cost is DEVICE_SECONDS else DEVICE_SECONDS
    return [
        _scatter(_QUALITY, cost, ACCURACY),
        _scatter(_QUALITY, cost, LOG_LIKELIHOOD),
        _scatter(_SIZE, SIZE, ACCURACY),
        _scatter(_SIZE, SIZE, LOG_LIKELIHOOD),
        _line(_ANYTIME, keys.ANYTIME_VAL_LOG_LIKELIHOOD, "best validation log-likelihood so far", "log"),
        *(_bar(_COST, measure) for measure in (cost, other, TRIALS)),
        _bar(_DEPTH, DEPTH),
        _line(_DEPTH, keys.DEPTH_POSTERIOR, "weight of each depth"),
        _line(_DEPTH, keys.DEPTH_VAL_LOG_LIKELIHOOD, "validation log-likelihood by depth"),
        _line(_DEPTH, keys.DEPTH_TEST_LOG_LIKELIHOOD, "test log-likelihood by depth"),
        _bar(_DEPTH, POSTERIOR_GAP),
    ]


_SECTIONS = [
    _section(_QUALITY, "Quality against cost", 2),
    _section(_SIZE, "Quality against size", 2),
    _section(_ANYTIME, "Best so far (step = device-ms)", 1),
    _section(_COST, "Cost", 3),
    _section(_DEPTH, "Depth (step = depth)", 3),
    _section("rest", "Model metrics", 3, open_=False),  # where MLflow itself puts whatever is in no chart above
]


def views(cost: Measure = DEVICE_SECONDS) -> tuple[View, ...]:
    """`cost`: that leads. Seconds mislead where the machine was shared, TFLOP do not."""
    state = {
        "searchFilter": f"tags.{keys.TAG_KIND} = '{keys.KIND_SEARCH}'",
        "orderByKey": f"metrics.`{cost.key}`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(COLUMNS),
        "columnOrder": list(COLUMNS),
        "columnWidths": {column: max(80, 7 * len(column) - 35) for column in COLUMNS},
        "compareRunCharts": _charts(cost),
        "compareRunSections": _SECTIONS,
        "isAccordionReordered": True,
        "runsHiddenMode": "SHOW_ALL",
        "hideEmptyCharts": True,
        "groupBy": None,
    }
    # Not a group of MLflow's: it colours a group by a hash of its name, and other colours live in one browser only.
    means = {"searchFilter": f"tags.{keys.TAG_KIND} = '{keys.KIND_MEAN}'"}
    return (
        View("one-shot-vs-search", "One-shot vs search", state),
        View("mean-over-seeds", "Mean over seeds", state | means),
    )


VIEWS = views()
