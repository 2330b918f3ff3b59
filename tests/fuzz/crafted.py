"""Files by somebody who knows how ours are made: checksums are right, the content is not; and names that say more.

What a program would obey (a pickle, a pointer, markup, an escape sequence) must stay data, or be refused.
"""

import copy
import gzip
import hashlib
import io
import json
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from numpy.lib import format as npy

from harness.replaying.recorded import recorded_in
from harness.replaying.tables import write_table
from harness.running.store import _sealed, _Tail
from tests.fuzz.inputs import SPACE, TABLE, X, Y, dumped, files_below, npz, results_on_disk
from tests.fuzz.judge import Case
from tests.rehearsed import run as rehearse_unit
from tests.rehearsed import small_space

LURE = "<script>obeyed()</script>"
NAMES = (
    *(LURE, "[red]x[/nothing]", "[link=http://x]y[/link]", "\x1b[2Jx", "\x9b31m", "\u202ex", "a\tb"),
    *("$x$", "{{7*7}}", "%s%n", "'; --", "# |x|"),
)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("obeyed"),)


# --- .npz -----------------------------------------------------------------------------------------------------------

DESCRIPTIONS = (
    *("|O", "O8", "<U1000000000", "<f3", "<i99", "|V8", "<M8[s]", "not a type", "", "<c16", ">f8,>f8", "<U-1"),
    *([["x", "<f4"]], [("x", "<f4")], {"names": ["x"], "formats": ["O"]}, ("<f4", (9, 9)), None, 7),
)
SHAPES = ((-1, 4), (60, -4), (2**62, 4), (2**31, 2**31), (60, 4.0), ("60", 4), (60,) * 40, None, (True, 4))


def _member(description: Any, shape: Any, content: bytes, header: bytes | None = None) -> bytes:
    text = header or repr({"descr": description, "fortran_order": False, "shape": shape}).encode()
    return npy.magic(1, 0) + len(text).to_bytes(2, "little") + text + content


@st.composite
def crafted_arrays(draw: DrawFn) -> Case:
    name, rows = draw(st.sampled_from([("x_train", (60, 4)), ("y_train", (60,))]))
    content = draw(st.sampled_from([b"", b"\0" * 960, pickle.dumps(Bomb()), pickle.dumps([Bomb()] * 60)]))
    headers = (b"__import__('os').abort()", b"{" * 900, b"[]", b"{'descr': '<f4'}", b"\xff" * 40, b"(lambda: 0)()")
    member = draw(
        st.one_of(
            st.sampled_from(DESCRIPTIONS).map(lambda each: _member(each, rows, content)),
            st.sampled_from(SHAPES).map(lambda each: _member("<f4", each, content)),
            st.sampled_from(headers).map(lambda each: _member(None, None, content, each)),
            st.just(npy.magic(9, 9) + content),
        )
    )
    file = io.BytesIO(npz(**({"y_train": Y} if name == "x_train" else {"x_train": X})))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(f"{name}.npy", member)
    text = dumped({**SPACE, "data": {"kind": "arrays", "path": "data.npz"}})
    return Case(("trial", "mine.yaml", "--depth", "0"), False, {"data.npz": file.getvalue(), "mine.yaml": text})


# --- .pt ------------------------------------------------------------------------------------------------------------


def _saved(content: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **how)
    return file.getvalue()


CHECKPOINTS: tuple[Callable[[], bytes], ...] = (
    lambda: _saved(Bomb()),
    lambda: _saved({"config_hash": Bomb()}),
    lambda: _saved({"config_hash": "0" * 16}),
    lambda: _saved({"config_hash": ["x"], "scaler": {}}),
    lambda: _saved([torch.zeros(3)]),
    lambda: _saved({}, _use_new_zipfile_serialization=False),
    lambda: _saved(Bomb(), _use_new_zipfile_serialization=False),
    lambda: pickle.dumps(Bomb()),
    lambda: pickle.dumps({"config_hash": 1}),
    lambda: npz(data=X),
)


@st.composite
def crafted_checkpoints(draw: DrawFn) -> Case:
    content = draw(st.sampled_from(CHECKPOINTS))()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(content) - 1))
        content = content[:at] + bytes([content[at] ^ draw(st.integers(1, 255))]) + content[at + 1 :]
    args = ("trial", "mine.yaml", "--depth", "1", "--checkpoint", "crafted.pt")
    return Case(args, False, {"crafted.pt": content, "mine.yaml": dumped(SPACE)})


# --- tables ---------------------------------------------------------------------------------------------------------


@cache
def _table() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        rehearse_unit(Path(folder), "grid")
        path = Path(folder, "small.json.gz")
        write_table(path, recorded_in(Path(folder), "small"))
        return json.loads(gzip.decompress(path.read_bytes()).splitlines()[1])


def _packed(body: Any) -> bytes:
    text = json.dumps(body)
    header = json.dumps({"table": 1, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    return gzip.compress(f"{header}\n{text}\n".encode(), mtime=0)


@st.composite
def crafted_tables(draw: DrawFn) -> Case:
    body = copy.deepcopy(_table())
    each = draw(st.sampled_from(body["recordings"]))
    progress = each["progress"]
    match draw(st.integers(0, 6)):
        case 0:
            value = draw(st.sampled_from([99.0, 1e300, 0.5]))
            progress["val"]["log_likelihood"] = [value] * len(progress["epoch"])
        case 1:
            name = draw(st.sampled_from(["accuracy", "ece", "brier"]))
            progress["val"][name][0] = draw(st.sampled_from([-0.5, 2.5, 1e9]))
        case 2:
            progress["cost"]["held_seconds"] = progress["cost"]["held_seconds"][::-1]
        case 3:
            progress["epoch"] = draw(st.permutations(progress["epoch"]).filter(lambda one: one != progress["epoch"]))
        case 4:
            progress["epoch"] = progress["epoch"][1:]
        case 5:
            each["depth"] = draw(st.sampled_from([99, 7, 10**9, -1]))
        case _:
            each["config_hash"] = draw(st.sampled_from(["0" * 16, LURE, "", "\x1b[2J"]))
    args = ("replay", "crafted.json.gz", "--methods", "random_search", "--search-seeds", "1")
    return Case(args, False, {"crafted.json.gz": _packed(body)}, secrets=(LURE,))


# --- ledgers --------------------------------------------------------------------------------------------------------


@st.composite
def crafted_ledgers(draw: DrawFn) -> Case:
    """Changed and chained anew, beside results that know better."""
    files = dict(results_on_disk())
    name = next(each for each in files if each.endswith("ledger.jsonl"))
    events = [json.loads(line) for line in files[name].splitlines()]
    ends = [event for event in events if event["event"] == "end"]
    reports = [event for event in events if event["event"] == "report" and event["report"]["progress"]]
    match draw(st.integers(0, 5)):
        case 0:
            events.remove(draw(st.sampled_from([each for each in ends if each["trial"] != "final"])))
        case 1:
            choice = next(event for event in events if event["event"] == "choice")
            choice["d_opt"] += 1
        case 2:
            last = {event["trial"]: event for event in reports}
            draw(st.sampled_from(list(last.values())))["report"]["progress"]["val"]["accuracy"] = 0.99
        case 3:
            final = next(event for event in events if event["event"] == "report" and event["report"]["final"])
            final["report"]["final"]["chosen"]["log_likelihood"] = 99.0
        case 4:
            draw(st.sampled_from([each for each in ends if each["trial"] != "final"]))["time"] += 1000.0
        case _:
            events.append({**draw(st.sampled_from(ends)), "trial": draw(st.sampled_from([*NAMES, "t999"]))})
    tail, lines = _Tail(0, 0, "small/grid/seed-0"), []
    for event in events:
        event = {key: value for key, value in event.items() if key not in ("n", "checksum")}
        line, tail = tail.followed_by(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
        lines.append(line)
    files[name] = b"".join(lines)
    return Case(("check", "results"), False, files, refusal=(1,))


# --- names ----------------------------------------------------------------------------------------------------------


@cache
def _described(name: str) -> dict[str, bytes]:
    """A complete search of a space that describes itself so."""
    with tempfile.TemporaryDirectory() as folder:
        rehearse_unit(Path(folder), "grid", small_space(description=name))
        return files_below(Path(folder))


@st.composite
def crafted_names(draw: DrawFn) -> Case:
    """Of classes, columns and files: shown as text, wherever they are shown."""
    name = draw(st.sampled_from(NAMES))
    valid = True
    match draw(st.integers(0, 4)):
        case 0:  # in the report
            files = dict(results_on_disk())
            path = next(each for each in files if each.endswith("result.json"))
            lines = files[path.replace("result.json", "trials.jsonl")].decode()
            result = json.loads(files[path])
            del result["checksum"]
            one = {"n_test": 1, "n_predicted": 1, "rows": 3, "recall": 1.0, "precision": 1.0, "reliability": []}
            result["final"]["per_class"] = [{**one, "name": name}, {**one, "name": "other"}]
            files[path] = _sealed(json.dumps(result, indent=1), lines).encode()
            return Case(("report", "small"), True, files, secrets=(LURE,))
        case 1:  # in MLflow
            database = f"sqlite:///{draw(st.uuids())}.db"  # MLflow keeps one open, by its name
            args = ("sync", "small", "--tracking-uri", database)
            return Case(args, True, _described(name), secrets=(LURE,))
        case 2:  # a column and a class
            table = TABLE.replace("size", f'"{name}"').replace(",a\n", f',"{name}"\n')
            data: dict[str, Any] = {"kind": "table", "path": "data.csv", "target": "y"}
            files = {"data.csv": table.encode()}
        case 3:  # a column that is not there
            valid = False
            data = {"kind": "table", "path": "data.csv", "target": "y", "drop": [name]}
            files = {"data.csv": TABLE.encode()}
        case _:
            file = name.replace("/", "") + ".npz"
            valid = file.isprintable()
            data, files = {"kind": "arrays", "path": file}, {file: npz(x_train=X, y_train=Y.astype("U") + name)}
    return Case(("trial", "mine.yaml", "--depth", "0"), valid, {**files, "mine.yaml": dumped({**SPACE, "data": data})})


CRAFTED = st.one_of(crafted_arrays(), crafted_checkpoints(), crafted_tables(), crafted_ledgers(), crafted_names())
