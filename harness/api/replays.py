"""Searches replayed on recorded trials: of one space, or of several, which are then judged over spaces."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.planned import import_ray_quietly
from harness.api.results import Folder, Space, methods_in, name_of, no_results
from harness.errors import UserError
from harness.options import Methods, Seeds, seeds_of
from harness.running.inputs import devices_of, methods_of, space_of
from harness.schema.settings import SearchSpace
from harness.text.files import checked_path, write_atomically

if TYPE_CHECKING:
    from harness.comparing.replays import Replay
    from harness.methods.base import SearchMethod
    from harness.replaying.recorded import Recorded
    from harness.studies.across import OnSpace, Replays


@dataclass(frozen=True)
class Asked:
    """How to replay, whatever the space: checked before anything is read."""

    methods: Methods
    search_seeds: int
    devices: Sequence[int]
    seeds: Sequence[int] | None
    choice_within: float | None
    figure: Path | None
    out: Path
    progress: bool

    @classmethod
    def of(
        cls,
        methods: Methods,
        search_seeds: int,
        devices: int | str | Sequence[int],
        seeds: Seeds | None,
        choice_within: float | None,
        figure: Folder | None,
        out: Folder,
        progress: bool,
    ) -> "Asked":
        if isinstance(search_seeds, bool) or not isinstance(search_seeds, int) or search_seeds < 1:
            raise UserError(f"search_seeds must be a whole number, at least 1; got {search_seeds!r}")
        numbers, wanted = devices_of(devices), None if seeds is None else seeds_of(seeds)
        drawn = None if figure is None else checked_path(figure, "the figure")
        if drawn and (drawn.suffix != ".svg" or not drawn.absolute().parent.is_dir()):
            raise UserError(f"the figure must be an .svg file in a folder that exists; got {str(figure)!r}")
        return cls(methods, search_seeds, numbers, wanted, choice_within, drawn, Path(out), progress)

    def loaded(self) -> "dict[str, SearchMethod]":
        found = methods_of(self.methods)
        if self.methods == "all":
            return {row: method for row, method in found.items() if method.can_be_replayed}
        return found

    def recorded(self, space: Space) -> "tuple[Recorded, str]":
        """The recordings, as they are asked for, and where they are from."""
        found, source = _recorded(space, self.out)
        found = found if self.choice_within is None else found.choosing_within(self.choice_within)
        return found if self.seeds is None else found.with_seeds(self.seeds), source


def replay_one(space: Space, asked: Asked) -> "Replay":
    recorded, source = asked.recorded(space)
    loaded = asked.loaded()
    from harness.replaying.searches import replay_searches
    from harness.terminal.search_bar import search_bar

    total = len(loaded) * len(recorded.seeds) * asked.search_seeds * len(asked.devices)
    with search_bar(total, asked.progress) as done:
        replayed = replay_searches(recorded, loaded, asked.search_seeds, asked.devices, done)
    replayed = replayed.model_copy(update={"recordings": source})
    if asked.figure:
        from harness.reporting.replays import draw_replay

        write_atomically(asked.figure, draw_replay(replayed).standalone_svg)
    return replayed


def replay_several(spaces: Sequence[Space], asked: Asked) -> "Replays":
    """One after the other: of each only numbers are kept."""
    _check_different([str(_place(space)) for space in spaces])
    # Every one is looked at first: a mistake in the last must not cost the replays of the others.
    _check_different([_checked_name(space, asked) for space in spaces])
    loaded = asked.loaded()
    from harness.measures import DEVICE_SECONDS
    from harness.studies.across import Replays, across
    from harness.studies.definition import MOST_DECLARED

    compared = [row for row, method in loaded.items() if not method.exhaustive]
    if not compared:
        raise UserError(f"over spaces, methods are held against {', '.join(loaded)}; give others, or one space")
    declared = compared if asked.methods != "all" and len(compared) <= MOST_DECLARED else ()
    found = [_judged(space, asked, loaded) for space in spaces]
    view = across([space for _, space in found], declared, {}, DEVICE_SECONDS)
    return Replays(replays=tuple(replay for replay, _ in found), across=view)


def _place(space: Space) -> Space:
    """Tables by where they are, however that is written."""
    return Path(space).resolve() if not isinstance(space, SearchSpace) and _is_table(space) else name_of(space)


def _check_different(names: Sequence[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"over spaces, each space counts once; {twice} is given {names.count(twice)} times")


def _checked_name(space: Space, asked: Asked) -> str:
    """Of the space, whose recordings can be judged."""
    recorded, _ = asked.recorded(space)
    recorded.by_seed()
    if not recorded.all_depths():
        raise UserError(f"no seed of {recorded.space.name} has every depth evaluated on the test set, as judging needs")
    return recorded.space.name


def _judged(space: Space, asked: Asked, loaded: "dict[str, SearchMethod]") -> "tuple[Replay, OnSpace]":
    from harness.measures import DEVICE_SECONDS
    from harness.replaying.searches import judged_searches
    from harness.studies.across import OnSpace
    from harness.terminal.search_bar import search_bar

    recorded, source = asked.recorded(space)
    total = (len(loaded) + 1) * len(recorded.seeds) * asked.search_seeds * len(asked.devices)
    with search_bar(total, asked.progress) as done:
        replay, stage = judged_searches(recorded, loaded, asked.search_seeds, asked.devices, done)
    rows = recorded.recordings[0].facts.n_train
    judged = OnSpace.of(recorded.space.name, recorded.space, rows, stage, DEVICE_SECONDS, replay.headroom)
    return replay.model_copy(update={"recordings": source}), judged


# --- where recordings are -------------------------------------------------------------------------------------------


def _is_table(space: Path | str) -> bool:
    from harness.replaying.tables import ENDING

    return str(space).endswith(ENDING)


def _recorded(space: Space, out: Path) -> "tuple[Recorded, str]":
    """Of a table; of the results of a space; or else of the table that ships with it. And which of them it was."""
    import_ray_quietly()
    from harness.replaying.recorded import NoRecordings
    from harness.replaying.tables import read_table, shipped_tables

    if not isinstance(space, SearchSpace) and _is_table(space):
        return read_table(Path(space)), str(space)
    name = name_of(space)
    try:
        return recorded_in_folder(space, out), str(out / name)
    except NoRecordings:
        if name not in shipped_tables():
            raise
    shipped = read_table(shipped_tables()[name])
    # With the settings that the space has now, which may be a user's own of this name: then it says what differs.
    return shipped.model_copy(
        update={"space": space_of(space)}
    ), f"the table that ships with the harness, as {out} has none"


def recorded_in_folder(space: Space, out: Path) -> "Recorded":
    import_ray_quietly()
    from harness.replaying.recorded import NoRecordings, recorded_in

    name = name_of(space)
    if not methods_in(out / name):
        raise NoRecordings(no_results(space, out))
    return recorded_in(out, name)
