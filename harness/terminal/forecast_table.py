"""A forecast as a table: one row per method, and per space where there are several."""

from rich.table import Table

from harness.comparing.numbers import plain
from harness.running.forecast import Forecast
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
    for each in forecast.methods:
        table.add_row(
            *([each.space] if several else []),
            each.method,
            str(each.trials),
            str(each.seeds),
            str(each.max_epochs),
            *(["replayed"] if each.replayed else _amounts(each.device_seconds, each.tflop, usd_per_hour)),
        )
    amounts = _amounts(forecast.device_seconds, forecast.tflop, usd_per_hour)
    table.add_row("all", *[""] * (len(table.columns) - 1 - len(amounts)), *amounts, style="bold")
    return table


def _amounts(device_seconds: float, tflop: float, usd_per_hour: float | None) -> tuple[str, ...]:
    counts = (f"{device_seconds:,.0f}", plain(tflop, 2))
    return counts if usd_per_hour is None else (*counts, f"{device_seconds / 3600 * usd_per_hour:,.2f}")


def _caption(forecast: Forecast) -> str:
    caveat = f" ({forecast.caveat}, so read these seconds as ratios)" if forecast.caveat else ""
    memory = forecast.memory_bytes
    takes = f" A trial takes up to about {shown_bytes(memory)} of memory." if memory else ""
    warning = f"Warning: {forecast.busy}. " if forecast.busy else ""
    return (
        f"{warning}A few steps of each network were timed on {forecast.device}{caveat}. Every "
        "trial counts up to its last epoch, so early stopping makes a run cheaper. Worker start, refit and final "
        f"evaluation come on top.{takes}{f' {forecast.advice}.' if forecast.advice else ''}"
    )
