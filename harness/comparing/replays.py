"""What replays say of methods: frozen values, to and from JSON, and how they look in the terminal and as markdown."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field
from rich.console import Group, RenderableType
from rich.text import Text

from harness.colours import colour_of
from harness.comparing.numbers import mean_and_spread, plain
from harness.comparing.render import markdown_table, rich_table
from harness.comparing.tables import TableView
from harness.comparing.values import Headroom
from harness.schema.identity import Frozen
from harness.statistics import Interval, mean_interval
from harness.text.shown import counted, markdown_text


class Spread(Frozen):
    """A number over all searches of a method. The interval is of the mean over training seeds."""

    mean: Interval
    low: float  # the tenth of the searches lies below
    median: float
    high: float  # and a tenth above
    between_training_seeds: float  # standard deviation of the seeds' means
    between_search_seeds: float  # root of the mean variance within a training seed

    @classmethod
    def of(cls, values: np.ndarray) -> "Spread":
        """`values` has a row for each training seed and a column for each search seed."""
        means = values.mean(axis=1)
        low, median, high = (float(each) for each in np.quantile(values, (0.1, 0.5, 0.9)))
        return cls(
            mean=mean_interval(means.tolist()),
            low=low,
            median=median,
            high=high,
            between_training_seeds=float(means.std(ddof=1)) if len(means) > 1 else 0.0,
            between_search_seeds=float(np.sqrt(values.var(axis=1, ddof=1).mean())) if values.shape[1] > 1 else 0.0,
        )


class OnDevices(Frozen):
    """A method's searches on so many devices at once."""

    devices: int
    device_seconds: Spread
    tflop: Spread
    epochs: Spread
    wall_seconds: Spread
    trials: Spread
    regret: Spread  # log-likelihood of the best recorded depth − that of the depth, or the network, that was chosen
    depths: dict[int, int]  # chosen depth → searches


class MethodReplay(Frozen):
    method: str
    colour: str | None
    trained: bool  # a one-shot method, as it ran: it cannot be replayed
    own_network: bool = False  # whether its regret is that of its own network, not of a fixed depth
    on: tuple[OnDevices, ...]  # in the order asked for


class Replay(Frozen):
    """What replays on recorded trials say of methods."""

    space: str
    seeds: tuple[int, ...]  # of training
    search_seeds: int
    devices: tuple[int, ...]
    regret_on: str  # the set that regret is measured on: test, or validation
    recordings: str = ""  # where they are from
    left_out: dict[str, str] = Field(default_factory=dict)  # one-shot method → why it cannot stand beside the replays
    methods: tuple[MethodReplay, ...]
    headroom: Headroom | None = None  # None: not every depth was evaluated on the test set, or there is only one


def tables(replay: Replay) -> Sequence[TableView]:
    """Cost and choice on the first number of devices that was asked for, then seconds by the number of devices."""
    first = replay.devices[0]
    seeds = "1 training seed" if len(replay.seeds) == 1 else f"{len(replay.seeds)} training seeds"
    views = [
        TableView(
            title=f"Searches on recorded trials of {replay.space}, {_devices(first)}",
            caption=f"Mean ± half of the 95 % t interval over {seeds}. {_of_searches(replay)}"
            "sd: of device-seconds, between training seeds and between search seeds. Regret: "
            f"{replay.regret_on} log-likelihood of the best recorded depth − that of the chosen one, in nats. "
            f"{_of_one_shots(replay)}Worker start, checkpoints and lost work are in no cost. "
            f"Recordings: {replay.recordings}."
            + "".join(
                f" Not shown, since it differs from them: {row} ({why})." for row, why in replay.left_out.items()
            ),
            columns=(
                *("method", "how", "device-s", "sd training", "sd search", "TFLOP", "trials"),
                *("d_opt", "regret"),
            ),
            rows=tuple(_row(each) for each in replay.methods),
        )
    ]
    if len(replay.devices) > 1:
        views.append(
            TableView(
                title="Wall-clock in seconds, by the number of devices",
                caption="Mean over all searches, on the simulated clock. A one-shot network uses one device.",
                columns=("method", *map(str, replay.devices)),
                rows=tuple(
                    (each.method, *(plain(on.wall_seconds.mean.mean) for on in each.on)) for each in replay.methods
                ),
            )
        )
    return views


def _of_searches(replay: Replay) -> str:
    """How many searches a replayed method stands for."""
    if replay.search_seeds == 1:
        return "Of each, a replayed method has 1 search seed. "
    return (
        f"Of each, a replayed method has {replay.search_seeds} search seeds; where its search does not depend on its "
        "seed, as grid's, one replay stands for all of them. "
    )


def _of_one_shots(replay: Replay) -> str:
    """Whose regret a one-shot's is."""
    trained = [each for each in replay.methods if each.trained]
    if not trained:
        return ""
    if all(each.own_network for each in trained):
        return "As it ran: a one-shot network, trained and not replayed; its regret is that of its own network. "
    return (
        "As it ran: a one-shot network, trained and not replayed; but its regret is that of a stand-alone network of "
        "the depth it chose, since these recordings do not hold its own measures. "
    )


def _devices(number: int) -> str:
    return counted(number, "device")


def _row(method: MethodReplay) -> tuple[str, ...]:
    on = method.on[0]
    most = max(on.depths, key=lambda depth: on.depths[depth])
    share = on.depths[most] / sum(on.depths.values())
    return (
        method.method,
        "as it ran" if method.trained else "replayed",
        mean_and_spread(on.device_seconds.mean),
        plain(on.device_seconds.between_training_seeds),
        plain(on.device_seconds.between_search_seeds),
        mean_and_spread(on.tflop.mean),
        mean_and_spread(on.trials.mean),
        f"{most} ({share:.0%})",
        mean_and_spread(on.regret.mean),
    )


def as_tables(replay: Replay) -> RenderableType:
    colours = {each.method: colour_of(each.method, each.colour) for each in replay.methods}
    needed = [Text(f"{replay.headroom.sentence}\n", style="bold")] if replay.headroom else []
    return Group(*needed, *(rich_table(view, colours) for view in tables(replay)))


def as_markdown(replay: Replay) -> str:
    lines = [f"# {markdown_text(replay.space)}: searches on recorded trials", ""]
    lines += [f"**{markdown_text(replay.headroom.sentence)}**", ""] if replay.headroom else []
    return "\n".join([*lines, *(line for view in tables(replay) for line in markdown_table(view))]) + "\n"


def as_json(replay: Replay) -> str:
    return replay.model_dump_json(indent=2) + "\n"
