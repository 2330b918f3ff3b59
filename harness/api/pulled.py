"""Results that a storage has, brought to this machine: what `harness.pull` and `harness pull` do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.api.planned import import_ray_quietly
from harness.api.results import Folder, Space, name_of
from harness.backends.one_writer import only_writer
from harness.backends.storage import Storage, is_uri
from harness.errors import UserError, full_disk_told
from harness.options import checked_storage
from harness.text.files import check_writable, checked_path
from harness.text.shown import redacted


@dataclass(frozen=True)
class Pulled:
    """What a storage has of a space, and where it is now."""

    space: str
    out: Path
    searches: int
    complete: int  # of these


def pull(storage: str, spaces: Sequence[Space], out: Folder) -> list[Pulled]:
    """Of all spaces unless some are named, those of studies included."""
    root = checked_storage(storage)
    if not is_uri(root):
        raise UserError(
            f"a folder as --storage holds the results itself, so nothing is pulled; give it as --out {root}"
        )
    folder = checked_path(out, "out")
    check_writable(folder, "the output folder")
    import_ray_quietly()
    from harness.running.mirror import fetch, kept_spaces

    kept = kept_spaces(Storage(root))
    there = sorted({space for _, space in kept})
    wanted = [name_of(space) for space in spaces] or there
    if missing := [space for space in wanted if space not in there] or not there:
        named = f"of {', '.join(missing)} " if isinstance(missing, list) else ""
        raise UserError(
            f"the storage {redacted(root)} has no results {named}(it has {', '.join(there) or 'none of any space'}); "
            "give the URI that the runs had as --storage"
        )
    pulled = []
    with full_disk_told(folder), only_writer() as writer:
        for below, space in kept:
            if space in wanted:
                writer.hold(str(folder / below), space)
                found = fetch(Storage(root, below), folder / below, [space]).values()
                complete = sum(each.is_complete for each in found)
                pulled.append(Pulled(space, folder / below, len(found), complete))
    return pulled
