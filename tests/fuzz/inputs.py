"""The inputs, group by group: hypothesis strategies of cases that know whether they are valid.

Most begin with something valid and break it in one place that is known to matter; the rest is noise.
"""

import copy
import io
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from PIL import Image

from tests.fuzz.judge import Case
from tests.rehearsed import run as rehearse_unit

ROOT = Path(__file__).parents[2]
REMOVED = object()
Values = dict[str, Any]

NOISE = st.one_of(st.text(max_size=200), st.text(st.characters(categories=["Cc", "Cf", "Co", "Zl", "Zp"]), max_size=20))
JUNK: SearchStrategy[Any] = st.one_of(  # what no setting that is a number takes
    st.text(max_size=20).filter(lambda text: not _is_number(text)),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9), max_size=2),
    st.none(),
    st.booleans(),
    st.sampled_from([float("nan"), float("inf"), -float("inf")]),
)
WRONG_SIZE = st.one_of(st.integers(-(10**6), -1), st.sampled_from([10**12, 10**29, -(10**29)]))


def _is_number(text: str) -> bool:
    value = yaml.safe_load(text) if text.strip("+-._0123456789eExXoOaAbBnNiIfF:") == "" else text
    return not isinstance(value, str)


def dumped(values: Any) -> bytes:
    return yaml.safe_dump(values, allow_unicode=True).encode("utf-8", errors="surrogatepass")


def changed(values: Values, path: str, value: Any) -> Values:
    """A copy with the value at a dotted path replaced, or removed."""
    new = copy.deepcopy(values)
    place: Any = new
    *parents, last = path.split(".")
    for parent in parents:
        place = place.setdefault(parent, {}) if isinstance(place, dict) else place[int(parent)]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return new


@st.composite
def broken_yaml(draw: DrawFn) -> bytes:
    """Text that is no settings, whoever reads it."""
    kind = draw(st.integers(0, 9))
    many = draw(st.integers(60, 6000))
    match kind:
        case 0:
            return draw(st.binary(max_size=300))
        case 1:
            opening = draw(st.sampled_from(["[", "{a: ", "- ", "? ", "&a [", "{? "]))
            return (opening * many).encode()
        case 2:
            return b"[" * many + b"]" * many
        case 3:
            width, levels = draw(st.integers(8, 20)), draw(st.integers(6, 30))
            lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
            return "\n".join(["a0: &a0 [x, x]", *lines]).encode()
        case 4:
            tag = draw(st.sampled_from(["int", "float", "bool", "timestamp", "null", "binary", "set", "omap", "map"]))
            word = draw(st.sampled_from(["x", "''", "[]", "{}", "2026-13-45", "~"]))
            return f"training: {{max_epochs: !!{tag} {word}}}".encode()
        case 5:
            return f"depth: {{max: {'7' * many}}}".encode()
        case 6:
            return draw(st.sampled_from(["depth: &a {max: *a}", "a: &a [*a]", "<<: &a {<<: *a}", "<<: 3"])).encode()
        case 7:
            key = draw(st.sampled_from(["depth", "data", "? [a]\n", "{}", "2026-02-30", "1", "null", "yes"]))
            return f"{key}: 1\n{key}: 2\n".encode()
        case 8:
            return draw(st.sampled_from(["depth: {max: 3}", "x: 1"])).encode(
                draw(st.sampled_from(["utf-16", "utf-32"]))
            )
        case _:
            return draw(NOISE).encode("utf-8", errors="surrogatepass")


# --- search spaces --------------------------------------------------------------------------------------------------

SPACE: Values = {
    "description": "Made by the fuzzer.",
    "data": {"kind": "spirals", "arms": 2, "noise": 0.1, "n_train": 30, "n_val": 20, "n_test": 20},
    "network": {"kind": "fc", "width": 4},
    "depth": {"min": 0, "max": 3, "step": 1},
    "posterior": {"rule": "argmax", "prior": {"kind": "exponential", "gamma": 0.9}},
    "training": {"max_epochs": 2, "patience": 2, "lr": 0.1, "momentum": 0.5, "batch_size": 16, "min_delta": 0.0},
    "budget": {"trials": 2, "early_stopping_trials": 3},
    "margins": {"accuracy": 0.01},
}
COUNTS = (
    *(
        "data.arms",
        "data.n_train",
        "data.n_val",
        "data.n_test",
        "network.width",
        "depth.max",
        "depth.min",
        "depth.step",
    ),
    *("training.max_epochs", "training.patience", "training.batch_size", "budget.trials"),
)
AMOUNTS = ("data.noise", "posterior.prior.gamma", "training.lr", "training.momentum", "margins.accuracy")
WORDS = (
    "data.kind",
    "network.kind",
    "posterior.rule",
    "posterior.prior.kind",
    "training.monitor",
    "training.precision",
)
REQUIRED = ("data", "network", "depth", "data.kind", "network.kind", "depth.max")
GROUP = ("data", "network", "depth", "posterior", "training", "budget", "margins")


@st.composite
def wrong_setting(draw: DrawFn) -> tuple[str, Any]:
    """A key and a value that no space may have."""
    kind = draw(st.integers(0, 5))
    match kind:
        case 0:
            return draw(st.sampled_from(COUNTS)), draw(st.one_of(JUNK, WRONG_SIZE, st.floats(0.1, 0.9)))
        case 1:
            return draw(st.sampled_from(AMOUNTS)), draw(st.one_of(JUNK, st.floats(-1e9, -0.001)))
        case 2:
            return draw(st.sampled_from(WORDS)), draw(st.one_of(JUNK, st.integers(), WRONG_SIZE))
        case 3:
            sizes = {"depth.max": 10**9, "network.width": 10**7, "data.n_train": 10**12, "data.n_test": 10**9}
            key = draw(st.sampled_from(sorted(sizes)))
            return key, sizes[key] * draw(st.integers(1, 50))
        case 4:
            group = draw(st.sampled_from(GROUP))
            return f"{group}.{draw(st.text('abcdefgh_', min_size=9, max_size=12))}", draw(st.integers(0, 9))
        case _:
            name = draw(st.sampled_from(["../x", "a/b", "a" * 300, "", ".", "a\0b", "a b", "é", "-x", "\x1b[31m"]))
            return "name", name


GOOD_SETTINGS: tuple[tuple[str, Any], ...] = (
    *(("depth.max", value) for value in (1, 5)),
    *(("data.n_train", value) for value in (20, 64)),
    *(("training.lr", value) for value in (1e-4, 0.5)),
    *(("description", value) for value in ("a\x07b" * 2, "[red]x[/nothing]", "<b>\u202e", "2026-02-30", "x" * 9000)),
    *(("training.monitor", value) for value in ("none", "train_objective")),
    *(("data.arms", value) for value in (2, 4)),
)


def reads_space(draw: DrawFn, name: str) -> tuple[str, ...]:
    """A command that reads a search space; none of them gets beyond reading a bad one."""
    return draw(
        st.sampled_from(
            [
                ("trial", name, "--depth", "0"),
                ("trial", name, "--method", "ldn", "--json"),
                ("run", name, "--methods", "deepest"),
                ("run", name, "--dry-run"),
                ("check", "grid", "--space", name),
                ("compare", name),
                ("report", name),
                ("sync", name),
            ]
        )
    )


@st.composite
def space_files(draw: DrawFn) -> Case:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        key, value = draw(st.sampled_from(GOOD_SETTINGS))
        text = dumped(changed(SPACE, key, value))
        return Case(("trial", "mine.yaml", "--depth", "1"), valid=True, files={"mine.yaml": text})
    if kind <= 4:
        key, value = draw(wrong_setting())
        text = dumped(changed(SPACE, key, value))
        sized = isinstance(value, int) and value > 10**6 and key != "name"
        command = ("trial", "mine.yaml", "--depth", "0") if sized else reads_space(draw, "mine.yaml")
        return Case(command, valid=False, files={"mine.yaml": text})
    if kind == 5:
        text = dumped(changed(SPACE, draw(st.sampled_from(REQUIRED)), REMOVED))
        return Case(reads_space(draw, "mine.yaml"), valid=False, files={"mine.yaml": text})
    if kind == 6:
        bad = st.sampled_from(
            ["a\0b.yaml", "a" * 300 + ".yaml", "a/" * 3000 + "b.yaml", "/proc/self/x.yaml", "\x1b.yaml"]
        )
        return Case(reads_space(draw, draw(bad)), valid=False)
    if kind == 7:
        name = draw(NOISE.filter(lambda text: not text.startswith("-"))) or "nothing"
        return Case(draw(st.sampled_from([reads_space(draw, name), ("study", name), ("doctor", name)])), valid=False)
    return Case(reads_space(draw, "mine.yaml"), valid=False, files={"mine.yaml": draw(broken_yaml())})


@st.composite
def overrides(draw: DrawFn) -> Case:
    kind = draw(st.integers(0, 7))
    command = draw(st.sampled_from([("trial", "mine.yaml", "--depth", "0"), ("run", "mine.yaml", "--dry-run")]))
    valid = False
    if kind == 0:
        command, valid = ("trial", "mine.yaml", "--depth", "0"), True
        key, value = draw(st.sampled_from(GOOD_SETTINGS))
        text = f"{key}={yaml.safe_dump(value).removesuffix('...' + chr(10)).strip()}"
    elif kind <= 3:
        key, value = draw(wrong_setting())
        text = f"{key}={yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}"
        command = ("trial", "mine.yaml", "--depth", "0")
    elif kind == 4:
        text = draw(NOISE.filter(lambda noise: "=" not in noise))
    elif kind == 5:
        text = f"{'.'.join(['a'] * draw(st.integers(2, 5000)))}={draw(st.integers())}"
    elif kind == 6:
        text = f"{draw(st.sampled_from(COUNTS + AMOUNTS))}{draw(st.sampled_from(['', '.x', '.max.min']))}="
        text += draw(broken_yaml()).decode("utf-8", errors="replace")
    else:
        text = f"{draw(NOISE)}={draw(NOISE)}".replace("description", "descriptio").replace("name", "nam")
    return Case((*command, "--set", text), valid, files={"mine.yaml": dumped(SPACE)})


# --- cluster files --------------------------------------------------------------------------------------------------

_FILLED = {
    name: yaml.safe_load((ROOT / name).read_text(encoding="utf-8").replace("EDIT-ME", "10.0.0.1"))
    for name in ("ray_cluster.yaml", "ray_cluster_local.yaml")
}
FILE_CHECKS = ("schema", "provider", "node_config", "security group", "versions", "bindings", "token")
LISTS = (
    *("setup_commands", "head_setup_commands", "worker_setup_commands", "initialization_commands"),
    *("head_start_ray_commands", "worker_start_ray_commands"),
)
NO_LIST = st.one_of(
    st.integers(), st.text(max_size=9), st.just([1]), st.just([["a"]]), st.just([None]), st.just({"a": 1})
)
NO_MAPPING = st.one_of(st.integers(), st.text(min_size=1, max_size=9), st.just(["a"]), st.booleans())


@st.composite
def cluster_files(draw: DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(_FILLED)))
    values = _FILLED[name]
    if draw(st.integers(0, 2)) == 0:
        text = draw(broken_yaml())
    elif draw(st.booleans()):
        text = dumped(changed(values, draw(st.sampled_from(LISTS)), draw(NO_LIST)))
    else:
        places = ["provider", "file_mounts", "docker", "auth", "available_node_types", "provider.type", "cluster_name"]
        nodes = [f"available_node_types.{each}" for each in values.get("available_node_types", {})]
        places += [*nodes, *(f"{each}.{part}" for each in nodes for part in ("node_config", "resources"))]
        for each in nodes:
            places += [f"{each}.node_config.{part}" for part in ("SecurityGroupIds", "NetworkInterfaces", "ImageId")]
        places += ["provider.worker_ips", "provider.head_ip"] if name.endswith("local.yaml") else ["provider.region"]
        place = draw(st.sampled_from(places))
        word = place.endswith(("head_ip", "type", "cluster_name", "region", "ImageId"))
        text = dumped(changed(values, place, draw(st.just([1]) if word else NO_MAPPING)))
    return Case(("doctor", "mine.yaml"), valid=False, files={"mine.yaml": text}, in_lines=FILE_CHECKS)


# --- methods --------------------------------------------------------------------------------------------------------

METHOD = """
import sys
from ray import tune
from ray.tune.search import BasicVariantGenerator
from harness.methods.base import SearchMethod, SearchPlan

class Mine(SearchMethod):
    stride: int = 2
    adaptive = False

    def plan(self, space, budget, seed):
        depths = tune.grid_search(list(space.depth.values[:: self.stride]))
        return SearchPlan({"depth": depths}, BasicVariantGenerator(random_state=seed))
"""
SIGNATURE, RETURNED = "def plan(self, space, budget, seed):", METHOD.rpartition("        return ")[2]
BAD_PLANS = (
    *(
        "None",
        "self.plan(space, budget, seed)",
        "sys.exit(0)",
        "sys.exit('bye')",
        "quit()",
        "1 / 0",
        "{}",
        "SearchPlan",
    ),
    *("SearchPlan(None, None)", "SearchPlan({'depth': depths}, None)", "SearchPlan({'depth': {'x': 1}}, 3)", "depths"),
    "SearchPlan({'depth': depths}, BasicVariantGenerator(random_state=seed), num_samples='x')",
    "SearchPlan({'depth': depths}, BasicVariantGenerator(random_state=seed), num_samples=-1)",
    "SearchPlan({'depth': depths}, BasicVariantGenerator(random_state=seed), scheduler='x')",
    "SearchPlan({'depth': tune.grid_search([])}, BasicVariantGenerator(random_state=seed))",
    "SearchPlan(3, BasicVariantGenerator(random_state=seed))",
    "[][0]",
    "exec('(' * 1000)",
    "(_ for _ in ()).throw(UnicodeDecodeError('utf-8', b'', 0, 1, 'x'))",
)
BAD_SIGNATURES = (
    *(
        "async def plan(self, space, budget, seed):",
        "def plan(self):",
        "def plan(self, a, b, c, d):",
        "def plam(self):",
    ),
    *("@property\n    def plan(self):", "plan = 3\n    def other(self, space, budget, seed):"),
    *("def plan(self, space, budget, seed):\n        yield", "def plan(self, *, space, budget, seed):"),
)
BAD_FIELDS = (
    *('stride: int = "many"', "stride: int = 2.5", "stride: int = None", "stride: str = 5", "stride: Nowhere = 5"),
    *("stride: int = 2\n    adaptive: bool = True", "stride: int = 2\n    colour = 'red'", "stride = 1 / 0"),
    *("stride: int = 2\n    sys.exit(3)", "stride: int = 2\n    most_at_once = 0", "stride: object = object()"),
)


@st.composite
def method_files(draw: DrawFn) -> Case:
    kind = draw(st.integers(0, 8))
    name, source, options, valid = "mine.py", METHOD, "", False
    match kind:
        case 0:
            valid, options = True, f":stride={draw(st.integers(1, 4))}"
        case 1 | 2:
            source = METHOD.replace(RETURNED, draw(st.sampled_from(BAD_PLANS)) + "\n")
        case 3:
            source = METHOD.replace(SIGNATURE, draw(st.sampled_from(BAD_SIGNATURES)))
        case 4:
            source = METHOD.replace("stride: int = 2", draw(st.sampled_from(BAD_FIELDS)))
        case 5:
            options = ":" + draw(
                st.one_of(NOISE, st.sampled_from(["stride=x", "stride=", "stride=[[", "strid=1", "="]))
            )
        case 6:
            text = draw(
                st.one_of(NOISE, st.sampled_from(["(" * 5000, "x = " + "-" * 9000 + "1", "class A(", "import q_"]))
            )
            return _with_method(draw, name, text.encode("utf-8", errors="surrogatepass"), "", valid=False)
        case 7:
            name = draw(st.sampled_from(["Mine.py", "grid.py", "a b.py", "é.py", "a" * 300 + ".py", "a\0.py", "1.py"]))
        case _:
            source = draw(
                st.sampled_from(["", METHOD + METHOD.replace("Mine", "Yours"), METHOD[: draw(st.integers(0, 300))]])
            )
    return _with_method(draw, name, f"{source}# {draw(st.integers())}\n".encode(), options, valid)


def _with_method(draw: DrawFn, name: str, source: bytes, options: str, valid: bool) -> Case:
    on_disk = len(name) < 255 and "\0" not in name
    run = ("run", "mine.yaml", "--methods", f"{name}{options}", "--dry-run")
    command = draw(st.sampled_from([run, ("check", f"{name}{options}", "--space", "mine.yaml")]))
    if not valid and draw(st.integers(0, 3)) == 0:
        command = ("trial", "mine.yaml", "--method", f"{name}{options}")
    files = {"mine.yaml": dumped(SPACE), **({name: source} if on_disk else {})}
    return Case(command, valid, files, refusal=(1, 2) if command[0] == "check" else (2,))


# --- options --------------------------------------------------------------------------------------------------------

NO_AMOUNT = ("nan", "inf", "-inf", "-1", "1e400", "x", "", "1e30", "٣x", "0x1", "--", "None")
NO_COUNT = (*NO_AMOUNT, "0", "1.5", "9" * 5000, "10000000000", "1e3")
NO_PATH = ("a\0b", "a" * 300, "a/" * 3000, "/proc/x", "/sys/x", "/dev/null/x", "mine.yaml/x", "\x1b[2J")
NO_SEEDS = (
    "",
    "x",
    "-1",
    "1.5",
    "0,0",
    "3-1",
    "0-999999999999",
    "0-",
    "9" * 5000,
    "99999999999",
    "0,,1",
    "nan",
    "٣-٤x",
)
NO_STORAGE = ("foo://x", "s4://bucket", "://", "s3://", "mock://x", "http://x/y", *NO_PATH[:5])
NO_DEVICE = ("gpu", "cuda:99", "cuda:-1", "", "cpu:x", "meta", "\x07", "cuda:99999999999999999999")
RUN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(["--max-cost", "--cpus-per-trial"], (*NO_AMOUNT, "0")),
    "--gpus-per-trial": NO_AMOUNT,
    **dict.fromkeys(["--trials", "--epochs", "--workers", "--concurrency", "--parallel-units"], NO_COUNT),
    "--max-failures": tuple(value for value in NO_COUNT if value != "0"),
    "--seeds": NO_SEEDS,
    "--storage": NO_STORAGE,
    "--out": NO_PATH,
    "--data-dir": NO_PATH[:5],
    "--methods": (
        "",
        ",",
        "gird",
        "grid,grid",
        "grid:x=1",
        "all,grid",
        "asha:grace_epochs=0",
        "\x07",
        "ldn:",
        "grid:=1",
    ),
}
TRIAL_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--depth": (*NO_AMOUNT, "1.5", "9" * 5000, "4"),
    "--seed": (*NO_AMOUNT, "9" * 5000, "99999999999"),
    "--cpus": (*NO_COUNT, "99999"),
    "--device": NO_DEVICE,
    "--checkpoint": (*NO_PATH, ".", "/dev/zero"),
}
DOCTOR_OPTIONS = {"--cpus-per-trial": (*NO_AMOUNT, "0"), "--gpus-per-trial": NO_AMOUNT, "--storage": NO_STORAGE}


@st.composite
def options(draw: DrawFn) -> Case:
    kind = draw(st.integers(0, 9))
    files = {"mine.yaml": dumped(SPACE)}
    if kind == 0:
        good = [
            ("--seeds", "0-2"),
            ("--max-cost", "1"),
            ("--cpus-per-trial", "0.5"),
            ("--storage", "there"),
            ("--out", "o"),
        ]
        chosen = draw(st.sampled_from([*good, ("--epochs", "3"), ("--trials", "1"), ("--workers", "1000000")]))
        return Case(("run", "mine.yaml", "--dry-run", "--methods", "deepest", *chosen), True, files)
    if kind == 1:
        words = (
            "run",
            "mine.yaml",
            "compare",
            "--dry-run",
            "--seeds",
            "--what",
            "-x",
            "\x1b[31m",
            "http://a:secret@b",
            "--json",
        )
        args = tuple(draw(st.lists(st.sampled_from(words), max_size=5)))
        if args[:2] == ("run", "mine.yaml") or "--json" in args:
            args = (*args, "--what")
        return Case((*args, draw(st.sampled_from(["--nothing", "nonsense"]))), False, files, secrets=("secret",))
    table, command = draw(
        st.sampled_from(
            [
                (RUN_OPTIONS, ("run", "mine.yaml", *draw(st.sampled_from([(), ("--dry-run",)])))),
                (TRIAL_OPTIONS, ("trial", "mine.yaml")),
                (DOCTOR_OPTIONS, ("doctor",)),
                (
                    {"--out": NO_PATH},
                    draw(st.sampled_from([("compare", "small"), ("report", "x"), ("sync",), ("ui",)])),
                ),
            ]
        )
    )
    option = draw(st.sampled_from(sorted(table)))
    if command == ("trial", "mine.yaml") and option != "--depth":
        command = (*command, "--depth", "0")
    if option == "--out" and "--dry-run" in command:
        command = ("run", "mine.yaml")  # a forecast writes nothing, so it does not ask whether it could
    return Case((*command, option, draw(st.sampled_from(table[option]))), False, files)


# --- tracking URIs --------------------------------------------------------------------------------------------------

SECRET = st.text("abcXYZ012/@:?#&%!$ =", min_size=1, max_size=12).map(lambda text: f"s3cret{text}w0rd")
BAD_SCHEMES = ("foo", "ftp", "file", "sqllite", "", "HTTP", "javascript", "s3", "redis+x")
BAD_PLACES = ("host:99999999/x", "host:port", "[::1", ":5000", "", "ho st/x", "host\x00/x", "host\n/x", "\x1b[31m")


@st.composite
def tracking_uris(draw: DrawFn) -> Case:
    secret = draw(SECRET)
    kind = draw(st.integers(0, 9))
    command = draw(
        st.sampled_from([("sync", "small", "--out", "results"), ("run", "mine.yaml"), ("doctor",), ("ui", "small")])
    )
    if kind == 0:
        scheme = draw(st.sampled_from(["http", "https", "postgresql", "mysql+x"]))
        uri = f"{scheme}://me:{secret.replace(' ', '+')}@host/x"
        return _tracked(("run", "mine.yaml", "--dry-run", "--methods", "deepest"), uri, secret, valid=True)
    if kind <= 3:
        uri = f"{draw(st.sampled_from(BAD_SCHEMES))}://me:{secret}@host:5000/x?token={secret}"
    elif kind == 4:
        uri = f"{draw(st.sampled_from(['http', 'https']))}://me:{secret}@{draw(st.sampled_from(BAD_PLACES))}"
    elif kind == 5:
        uri = draw(st.sampled_from([f"me:{secret}@host", f"http:/me:{secret}@host", f"http:me:{secret}@host"]))
    elif kind == 6:
        places = ("", "/", "//proc/x.db", "//sys/x", "/" + "a" * 300, "a\0b", "/.", "a\x1b[2J", "/" * 5)
        uri, secret = f"sqlite:///{draw(st.sampled_from(places))}", "none"
    elif kind == 7:
        command = ("sync", "small", "--out", "results")  # to where nobody answers, or without a driver
        login = f"me:{secret.replace(' ', '+')}@"
        uri = draw(
            st.sampled_from([f"http://{login}127.0.0.1:9", f"mysql://{login}127.0.0.1:9/x", f"mssql://{login}h/x"])
        )
    else:
        uri, secret = draw(NOISE.filter(lambda text: ":" not in text and text != "" and text != "databricks")), "none"
    return _tracked(command, uri, secret, valid=False)


def _tracked(command: tuple[str, ...], uri: str, secret: str, valid: bool) -> Case:
    files = {"mine.yaml": dumped(SPACE), **(results_on_disk() if "small" in command else {})}
    parts = (secret,) if len(secret) > 6 else ()
    return Case((*command, "--tracking-uri", uri), valid, files, secrets=parts)


# --- files of results -----------------------------------------------------------------------------------------------


@cache
def results_on_disk() -> dict[str, bytes]:
    """Of one complete search of the space `small`, rehearsed and not trained."""
    with tempfile.TemporaryDirectory() as folder:
        rehearse_unit(Path(folder), "grid")
        return files_below(Path(folder))


@cache
def half_a_search() -> dict[str, bytes]:
    """Of one whose driver was killed after some steps."""
    with tempfile.TemporaryDirectory() as folder:
        rehearse_unit(Path(folder), "grid", max_steps=20)
        return files_below(Path(folder))


def files_below(folder: Path) -> dict[str, bytes]:
    files = {f"results/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if "checkpoints" not in name}


@st.composite
def result_files(draw: DrawFn) -> Case:
    command: tuple[str, ...] = draw(
        st.sampled_from([("compare", "small"), ("compare", "small", "--format", "json"), ("report", "small")])
    )
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return Case(command, True, results_on_disk())
    run = ("run", "small.yaml", "--methods", "grid")
    if kind <= 3:
        files, command, file = half_a_search(), run, "ledger.jsonl"
    else:
        file = draw(st.sampled_from(["plan.json", "result.json", "trials.jsonl"]))
        files, command = results_on_disk(), draw(st.sampled_from([command, run]))
    name = next(each for each in files if each.endswith(file))
    damaged = draw(_damage(files[name], lines=file.endswith("l"), anywhere=file != "plan.json"))
    if damaged == files[name]:
        damaged = b"\0"
    if file == "ledger.jsonl" and files[name].startswith(damaged):
        damaged = b"x\n" + damaged  # a ledger that ends early is one of a run that was killed earlier
    space = dumped(
        yaml.safe_load(next(content for each, content in files.items() if each.endswith("plan.json")))["space"]
    )
    return Case(command, False, {**files, name: damaged, "small.yaml": space})


def _damage(content: bytes, lines: bool, anywhere: bool) -> SearchStrategy[bytes]:
    cut = st.integers(0, len(content) - 20).map(lambda end: content[:end])
    noise = st.one_of(
        st.binary(max_size=100), st.sampled_from([b"", b"{}", b"[]", b"null", b"\xff", b"[" * 9000, b"{" * 9000])
    )
    ways = [cut, noise.map(lambda noise: noise + b"\n")]
    if anywhere:
        at = st.integers(0, len(content) - 1)
        ways.append(at.map(lambda place: content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]))
        ways.append(at.map(lambda place: content[:place] + b"\0" * 10 + content[place:]))
    if lines:
        every = content.splitlines(keepends=True)
        index = st.integers(0, len(every) - 2)
        ways.append(index.map(lambda gone: b"".join(every[:gone] + every[gone + 1 :])))
        ways.append(index.map(lambda twice: b"".join(every[: twice + 1] + every[twice:])))
    return st.one_of(ways)


# --- data files -----------------------------------------------------------------------------------------------------


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def claims_shape(shape: str) -> bytes:
    """A .npz whose header promises more than anybody has."""
    array = npz(x_train=np.zeros((30, 4), np.float32), y_train=np.arange(30) % 3)
    return array.replace(b"(30, 4), }" + b" " * (len(shape) - len("(30, 4)")), shape.encode() + b", }")


X, Y = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
BAD_ARRAYS: tuple[Callable[[], bytes], ...] = (
    lambda: npz(x_train=X),
    lambda: npz(x=X, y=Y),
    lambda: npz(x_train=X, y_train=Y[:-1]),
    lambda: npz(x_train=X, y_train=Y.astype(float)),
    lambda: npz(x_train=X, y_train=Y * 0),
    lambda: npz(x_train=X * np.nan, y_train=Y),
    lambda: npz(x_train=X.astype(np.float64) * 1e300, y_train=Y),
    lambda: npz(x_train=X.astype(object), y_train=Y),
    lambda: npz(x_train=X.astype(complex), y_train=Y),
    lambda: npz(x_train=X.astype("U"), y_train=Y),
    lambda: npz(x_train=X[:0], y_train=Y[:0]),
    lambda: npz(x_train=X[:, 0], y_train=Y),
    lambda: npz(x_train=X[:4], y_train=np.arange(4)),
    lambda: npz(x_train=X, y_train=Y, x_test=X[:, :2], y_test=Y),
    lambda: npz(x_train=X, y_train=Y, x_test=X),
    lambda: npz(x_train=X, y_train=Y, x_tset=X, y_tset=Y),
    lambda: npz(x_train=X, y_train=Y, x_test=X, y_test=Y + 7),
    lambda: npz(x_train=np.zeros((60, 3, 8, 8), np.uint8), y_train=Y),
    lambda: npz(x_train=np.zeros((60, 8, 8), np.float32) - 1, y_train=Y),
    lambda: claims_shape("(30000000000, 4)"),
    lambda: b"",
    lambda: b"PK\x03\x04",
)


def png(colour: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (8, 8), colour).save(file, format="png")
    return file.getvalue()


PNG = png(7)
HUGE_PNG = PNG.replace((8).to_bytes(4, "big") * 2, (60000).to_bytes(4, "big") * 2)
FOLDER = {f"images/{label}/{n}.png": png(20 * n) for label in "ab" for n in range(8)}
BAD_FOLDERS: tuple[dict[str, bytes], ...] = (
    {},
    {"images/a.png": PNG},
    {"images/a/1.png": PNG},
    {**FOLDER, "images/c/readme.txt": b"x"},
    {**FOLDER, "images/c/1.png": PNG},
    {**FOLDER, "images/a/bad.png": b"no image"},
    {**FOLDER, "images/a/huge.png": HUGE_PNG},
    {**FOLDER, "images/a/half.png": PNG[:40]},
    {"images/train/a/1.png": PNG, "images/test/a/1.png": PNG},
)


TABLE = "size,colour,y\n" + "".join(f"{n / 7},{'red' if n % 2 else 'blue'},{'abc'[n % 3]}\n" for n in range(60))
BAD_TABLES: tuple[bytes, ...] = (
    b"",
    b"size,colour,y\n",
    TABLE.replace("colour", "size").encode(),
    TABLE.replace(",y\n", ",z\n").encode(),
    TABLE.replace(",y\n", ",\n").encode(),
    TABLE.encode("utf-16"),
    TABLE.replace("red", "r\xe9d").encode("latin-1"),
    TABLE.replace("red", "", 1).encode(),
    TABLE.replace("red", "7", 1).encode(),
    TABLE.replace("red,", "", 1).encode(),
    TABLE.replace("red,", "red,red,", 1).encode(),
    TABLE.replace("red,", '"red,', 1).encode(),
    TABLE.replace(",a\n", ",\n").encode(),
    TABLE.replace(",a\n", ",1.5\n").replace(",b\n", ",2\n").replace(",c\n", ",3\n").encode(),
    TABLE.replace(",b\n", ",a\n").replace(",c\n", ",a\n").encode(),
    TABLE.replace(",", "\0").encode(),
    b"PAR1" + TABLE.encode() + b"PAR1",
)


@st.composite
def data_files(draw: DrawFn) -> Case:
    kind = draw(st.integers(0, 8))
    data: Values = {"kind": "arrays", "path": "data.npz"}
    files: dict[str, bytes] = {"data.npz": npz(x_train=X, y_train=Y)}
    valid = kind == 0
    if kind in (1, 2):
        files = {"data.npz": draw(st.sampled_from(BAD_ARRAYS))()}
    elif kind == 3:
        files = {"data.npz": files["data.npz"][: draw(st.integers(0, len(files["data.npz"]) - 30))]}
    elif kind == 4:
        data, files = {"kind": "image_folder", "path": "images", "size": 8}, draw(st.sampled_from(BAD_FOLDERS))
    elif kind == 5:
        kinds = st.sampled_from([{"kind": "arrays"}, {"kind": "image_folder"}])
        data = {
            **draw(kinds),
            "path": draw(st.sampled_from([*NO_PATH, "", ".", "none", "/proc", "/dev/zero", "~no/x"])),
        }
    elif kind == 6:
        key, value = draw(
            st.sampled_from([("n_train", 10**9), ("n_train", 1), ("test_fraction", 1.5), ("n_test", 10**9)])
        )
        data[key] = value
    elif kind in (7, 8):
        noise = st.one_of(st.binary(max_size=300), NOISE.map(lambda text: text.encode("utf-8", errors="surrogatepass")))
        name = draw(st.sampled_from(["data.csv", "data.parquet"]))
        content = draw(st.one_of(st.sampled_from(BAD_TABLES), noise))
        valid = draw(st.booleans()) and kind == 8
        data = {"kind": "table", "path": "data.csv" if valid else name, "target": "y"}
        files = {"data.csv": TABLE.encode()} if valid else {name: content}
    text = dumped({**SPACE, "data": data})
    return Case(("trial", "mine.yaml", "--depth", "0"), valid, {**files, "mine.yaml": text})


# --- studies --------------------------------------------------------------------------------------------------------

STUDY: Values = {
    "title": "Made by the fuzzer",
    "paper": "none",
    "base": "mine.yaml",
    "methods": "deepest",
    "figures": ["scan"],
    "claims": [{"says": "x", "paper": "x", "of": "d_opt", "at_least": 0, "at": {"depth.max": "largest"}}],
    "scales": {"small": {"vary": {"depth.max": [1, 2]}, "set": {"training.lr": 0.1}, "seeds": 1}},
}
BAD_VARY = (
    "depth.max",
    "depth.max=",
    "depth.max=a",
    "depth.max=1,1",
    "depth.max=nan",
    "x=1",
    "=",
    "depth.max=1,b",
    "\x07=1",
)
STUDY_KEYS = (
    *("title", "paper", "base", "methods", "figures", "claims", "scales", "scales.small", "scales.small.vary"),
    *("scales.small.seeds", "scales.small.set", "scales.small.vary.depth\0max"),
)


@st.composite
def study_files(draw: DrawFn) -> Case:
    kind = draw(st.integers(0, 4))
    study = dumped(STUDY)
    extra: tuple[str, ...] = ()
    if kind == 0:
        extra = ("--vary", draw(st.sampled_from(BAD_VARY)))
    elif kind == 1:
        study = draw(broken_yaml())
    elif kind == 2:
        key, value = draw(st.sampled_from([("name", "../x"), ("name", "a\0"), ("like", "nothing"), ("figures", ["x"])]))
        study = dumped(changed(STUDY, key, value))
    else:
        key = draw(st.sampled_from(STUDY_KEYS[:-1]))
        word = key in ("title", "paper", "base", "methods")
        study = dumped(
            changed(STUDY, key, draw(st.sampled_from([3, [1], {"a": {"b": 1}}] if word else [-3, "x", {"a": 1}])))
        )
    return Case(("study", "study.yaml", "--dry-run", *extra), False, {"study.yaml": study, "mine.yaml": dumped(SPACE)})


GROUPS: Mapping[str, tuple[int, SearchStrategy[Case]]] = {
    "space": (20, space_files()),
    "set": (15, overrides()),
    "cluster": (12, cluster_files()),
    "method": (13, method_files()),
    "option": (14, options()),
    "tracking": (9, tracking_uris()),
    "results": (8, result_files()),
    "data": (6, data_files()),
    "study": (3, study_files()),
}

WARM_UP = (
    Case(("run", "mine.yaml", "--dry-run", "--methods", "ldn,grid"), valid=True, files={"mine.yaml": dumped(SPACE)}),
    Case(("check", "asha"), valid=True),
    Case(("sync", "small", "--out", "results"), valid=True, files=results_on_disk()),
    Case(("report", "small"), valid=True, files=results_on_disk()),
)
