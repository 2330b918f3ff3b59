"""A forecast as a table: one row per method, and per space where there are several."""

import itertools
from collections.abc import Sequence

from rich.table import Table

from harness.comparing.numbers import plain
from harness.running.forecast import Forecast, MethodForecast
from harness.text.shown import shown_bytes


def forecast_table(forecast: Forecast, usd_per_hour: float | None = None) -> Table:
    several = len({each.space for each in forecast.methods}) > 1
    table = Table(box=None, pad_edge=False, caption=_caption(forecast), caption_justify="left")
    for column in (*(["space"] if several else []), "method"):
        table.add_column(column)
    for column in (
        "trials per seed",
        "seeds",
        "max epochs",
        "device-seconds",
        "TFLOP",
        *([] if usd_per_hour is None else ["USD"]),
    ):
        table.add_column(column, justify="right")

    def add_sum(name: str, methods: Sequence[MethodForecast], style: str) -> None:
        amounts = _amounts(
            sum(each.device_seconds for each in methods), sum(each.tflop for each in methods), usd_per_hour
        )
        first = (name, "all") if several else (name,)
        table.add_row(*first, *[""] * (len(table.columns) - len(first) - len(amounts)), *amounts, style=style)

    for space, group in itertools.groupby(forecast.methods, key=lambda each: each.space):
        methods = list(group)
        for each in methods:
            table.add_row(
                *([each.space] if several else []),
                each.method,
                str(each.trials),
                str(each.seeds),
                str(each.max_epochs),
                *(["replayed"] if each.replayed else _amounts(each.device_seconds, each.tflop, usd_per_hour)),
            )
        if several and len(methods) > 1:
            add_sum(space, methods, "italic")
    add_sum("all spaces" if several else "all", forecast.methods, "bold")
    return table


def _amounts(device_seconds: float, tflop: float, usd_per_hour: float | None) -> tuple[str, ...]:
    counts = (f"{device_seconds:,.0f}", plain(tflop, 2))
    return counts if usd_per_hour is None else (*counts, f"{device_seconds / 3600 * usd_per_hour:,.2f}")


def _caption(forecast: Forecast) -> str:
    caveat = f" ({forecast.caveat}, so read these seconds as ratios)" if forecast.caveat else ""
    memory = forecast.memory_bytes
    takes = f" A trial takes up to about {shown_bytes(memory)} of memory." if memory else ""
    warning = f"Warning: {forecast.busy}. " if forecast.busy else ""
    left_out = "".join(f"Left out: {space}: {why}. " for space, why in forecast.left_out.items())
    return (
        f"{warning}{left_out}A few steps of each network were timed on {forecast.device}{caveat}. Every "
        "trial counts up to its last epoch, so early stopping makes a run cheaper. Worker start, refit and final "
        f"evaluation come on top.{takes}{f' {forecast.advice}.' if forecast.advice else ''}"
    )
