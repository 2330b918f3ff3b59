"""A network of a user's own: its file, its options, its code in models, and what goes wrong, one sentence each."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import harness
from harness import networks
from harness.errors import UserError
from harness.methods import load_method
from harness.methods.base import OneShotMethod
from harness.models import FixedDepthNet
from harness.networks import load_network_file, network_of
from harness.replaying.conformance import closing, tried
from harness.replaying.network_rules import network_rules
from harness.running.inputs import space_of
from harness.running.messages import OwnCode
from harness.running.store import check_same_network
from harness.schema.networks import OwnNetwork
from harness.schema.records import FIXED_DEPTH, TrialConfig
from harness.schema.settings import SearchSpace
from harness.spaces import load_space
from harness.tracking.models import WITHOUT_THIS_PACKAGE, predicts_elsewhere
from harness.training.model_file import load_model, save_model
from harness.training.networks import build_network, check_network
from tests.synthetic import make_units
from tests.tiny import images, spirals

VIT = Path(harness.__file__).parent.parent / "docs" / "examples" / "my_vit.py"
ROWS = VIT.with_name("my_rows.py")
PLAIN = """
from typing import Annotated
import torch
from pydantic import Field
from torch import nn
from harness.networks.base import Network, Residual, StackedBatchNorm, GlobalMean

class Mine(Network):
    \"\"\"One of mine.\"\"\"

    width: Annotated[int, Field(gt=0)] = 6
    \"\"\"Units of a block.\"\"\"

    def stem(self, shape):
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], self.width))

    def block(self, number):
        return Residual(nn.Linear(self.width, self.width), nn.Tanh(), nn.Linear(self.width, self.width))

    def head(self, n_classes, n_heads):
        return nn.Linear(self.width, n_classes)

    def shrink(self, block, scale):
        self.scale(block[-1], scale)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own, with no network known from another test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(networks, "_own", {})
    yield


def space_with(text: str = PLAIN, *overrides: str, name: str = "mine.py") -> SearchSpace:
    Path(name).write_text(text)
    return load_space("quickstart", [f"network.kind={name}", "training.max_epochs=20", *overrides])


def small(text: str = PLAIN) -> OwnNetwork:
    settings = space_with(text).network
    assert isinstance(settings, OwnNetwork)
    return settings


def changed(*pairs: tuple[str, str]) -> str:
    text = PLAIN
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_its_options_are_its_fields_and_those_of_another_kind_are_gone() -> None:
    settings = space_with(PLAIN, "network.width=9").network
    assert settings.model_dump() == {"kind": "mine", "source": networks.hash_of(PLAIN), "width": 9}
    assert space_with().network.model_dump()["width"] == 6, "20 was an option of fc"
    back = load_space("quickstart", ["network.kind=conv"])
    assert back.network.model_dump() == {"kind": "conv", "channels": 64, "bottleneck": 32, "head_bn": "per_depth"}
    kept = space_of(space_with(), ["network.width=7"])
    assert kept.network.model_dump()["width"] == 7, "a space that is changed again checks the options again"


def test_the_source_is_part_of_what_identifies_a_trial_and_records_are_read_without_it() -> None:
    trials = [TrialConfig.of(space_with(text), FIXED_DEPTH, 2, 0) for text in (PLAIN, PLAIN + "# edited\n")]
    assert trials[0].hash != trials[1].hash
    networks._own.clear()
    read = TrialConfig.model_validate_json(trials[0].model_dump_json())
    assert read == trials[0] and read.hash == trials[0].hash
    with pytest.raises(UserError, match=r"the network mine is a user's own, and the file .* is not loaded here"):
        network_of(read.network)


def test_code_reaches_a_process_that_has_not_the_file() -> None:
    settings = small()
    code = OwnCode({}, networks.own_sources([settings, settings]))
    networks._own.clear()
    Path("mine.py").unlink()
    code.make_known()
    assert network_of(settings).model_dump() == {"width": 6}


def test_a_helper_module_that_a_worker_lacks_is_told() -> None:
    code = OwnCode({}, [("mine", "import my_helper\n" + PLAIN)])
    with pytest.raises(
        UserError, match=r"mine.py does not import: .*my_helper.*on the worker .* installed on every node"
    ):
        code.make_known()


BAD_FILES = [
    ("import nothing_like_this", "mine.py does not import: ModuleNotFoundError: .*nothing_like_this"),
    ("def (", "mine.py does not import: SyntaxError"),
    ("x = 1", "mine.py must define exactly one subclass of Network; found none"),
    (PLAIN + PLAIN.replace("Mine", "Other"), "exactly one subclass of Network; found Mine, Other"),
    (changed(("def head", "def heads")), r"mine.py: Mine does not define head\(n_classes, n_heads\)"),
    (changed(("    width:", "    source: str = ''\n    width:")), "source is no name for an option"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_FILES)
def test_files_that_are_no_network(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        space_with(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("import harness.networks.base as base\nclass Mine(base.Network): ...", True),
        ("from harness.networks.fc import FullyConnected\nclass Mine(FullyConnected): ...", True),
        ("from harness.methods.ldn import LearntDepth\nclass Mine(LearntDepth): ...", False),
        ("(" * 1000, False),  # too deep for Python's parser, which then raises MemoryError
    ],
)
def test_a_file_is_a_networks_by_the_class_that_it_derives_from(text: str, network: bool, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    assert networks.is_network(str(tmp_path / "mine.py")) == network


def test_files_that_are_not_there_or_have_a_name_of_ours() -> None:
    with pytest.raises(UserError, match=r"network file absent.py does not exist"):
        load_network_file(Path("absent.py"))
    with pytest.raises(UserError, match=r"none of conv, fc, resnet, tabular; got 'fc.py'"):
        space_with(name="fc.py")
    with pytest.raises(UserError, match=r"network.kind must be one of 'conv', 'fc', .* got 'resnot'"):
        load_space("quickstart", ["network.kind=resnot"])


def test_options_that_it_does_not_have() -> None:
    with pytest.raises(UserError, match=r"network mine: unknown key 'widht' \(did you mean 'width'"):
        space_with(PLAIN, "network.widht=3")
    with pytest.raises(UserError, match=r"network mine: width .*greater than 0; got -3"):
        space_with(PLAIN, "network.width=-3")


BAD_NETWORKS = [
    (
        ("def block(self, number):\n", "def block(self, number):\n        raise OSError('no')\n"),
        "cannot be built: OSError",
    ),
    (
        ("        return nn.Linear(self.width, n_classes)", "        return nn.Linear(7, n_classes)"),
        "a forward pass fails",
    ),
    (
        ("        return nn.Linear(self.width, n_classes)", "        return nn.Linear(self.width, 5)"),
        r"its head must turn features .*logits \(K, N, classes\), here \(11, 4, 2\); got \(11, 4, 5\)",
    ),
    (
        (
            "    def shrink",
            "    def readout(self, stage):\n        return nn.Identity()\n    def stage(self, depth):\n"
            "        return depth\n    def block(self, number):\n        return nn.LazyLinear(3)\n    def shrink",
        ),
        "has no shape before the first rows; use layers that are told their sizes",
    ),
    (
        (
            "    def shrink",
            "    def block(self, number):\n        return nn.Linear(self.width + number - 1, self.width + number"
            ")\n    def shrink",
        ),
        r"at depth 1 readout\(0\) must give features of shape as at depth 0, \(4, 6\); got \(4, 7\)",
    ),
    (("nn.Tanh()", "Infinite()"), "its output must be finite; at depth 1 it is not, before any training"),
    (("nn.Tanh()", "nn.Linear(6, 6, dtype=torch.float64)"), "must be float32, as all parameters; got torch.float64"),
    (("nn.Tanh()", "Strided()"), "must be contiguous; got shape"),
]
LAYERS = """
class Infinite(nn.Module):
    def forward(self, x):
        return x / 0

class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 6).t())
    def forward(self, x):
        return x
"""


@pytest.mark.parametrize(("pair", "sentence"), BAD_NETWORKS)
def test_networks_that_do_not_work_are_told_before_training(pair: tuple[str, str], sentence: str) -> None:
    space = space_with(changed(pair) + LAYERS)
    with pytest.raises(UserError, match=sentence) as error:
        check_network(space, spirals(TrialConfig.of(space, FIXED_DEPTH, 1, 0)))
    assert "\n" not in str(error.value)


def test_a_network_for_images_on_a_table_and_a_first_depth_that_lacks_a_stage() -> None:
    on_rows = load_space("quickstart", ["network.kind=resnet"])
    with pytest.raises(UserError, match=r"network.kind resnet needs images; .* 2 features"):
        check_network(on_rows, spirals(TrialConfig.of(on_rows, FIXED_DEPTH, 1, 0)))
    shallow = load_space("digits", ["data.as_images=true", "network={kind: resnet, blocks: [1, 2]}", "depth.min=3"])
    with pytest.raises(UserError, match=r"depth.min must be at least 4 for network.kind resnet .*; got 3"):
        check_network(shallow, images())


BROKEN_RULES = [
    (PLAIN, None, ""),
    (
        changed(
            ("nn.Linear(self.width, n_classes)", "nn.Sequential(nn.BatchNorm1d(6), nn.Linear(self.width, n_classes))")
        ),
        "it predicts every class at every depth, in finite numbers",
        "a BatchNorm1d in its head takes the statistics of all depths together",
    ),
    (
        changed(("nn.Linear(self.width, n_classes)", "nn.Sequential(Mixes(), nn.Linear(self.width, n_classes))"))
        + "class Mixes(nn.Module):\n    def forward(self, x):\n        return x - x.mean(dim=0)\n",
        "its head treats every depth by itself",
        "changes with the features of other depths; a BatchNorm1d in the head mixes them: use StackedBatchNorm",
    ),
    (
        changed(("self.scale(block[-1], scale)", "self.scale(block[0], scale)")),
        "a new block that is shrunk to 0 passes on what it is given",
        "block 1 shrunk to 0 changes what it is given",
    ),
    (
        changed(("nn.Tanh()", "Unused()")) + "class Unused(nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(2, 2)\n    def forward(self, x):\n        return x\n",
        "the gradient reaches every parameter",
        "no gradient reaches blocks.0.1.weight",
    ),
    (
        changed(
            ("    def block(self, number):\n", "    def block(self, number):\n        made.append(number)\n"),
            ("nn.Tanh()", "nn.Tanh() if len(made) < 4 else nn.ReLU()"),
        )
        + "made = []\n",
        "a block does not depend on how many there are",
        "a block may depend on its own number only",
    ),
]


@pytest.mark.parametrize(("text", "rule", "sentence"), BROKEN_RULES)
def test_the_check_finds_what_is_broken(text: str, rule: str | None, sentence: str) -> None:
    checks = {check.name: check for check in tried(network_rules(small(text), load_space("quickstart"), {}))}
    broken = [check for check in checks.values() if check.ok is False]
    assert [check.name for check in broken][:1] == ([rule] if rule else []), broken
    assert all(sentence in check.detail for check in broken[:1])


WITHOUT_SHRINK = changed(("    def shrink(self, block, scale):\n        self.scale(block[-1], scale)\n", ""))


@pytest.mark.parametrize(
    "text", [WITHOUT_SHRINK, pytest.param(ROWS.read_text(), marks=pytest.mark.slow)], ids=["mine", "my_rows.py"]
)
def test_only_autogrow_needs_shrink(text: str) -> None:
    """It says so, and nothing is wrong with a network that does not define it."""
    methods = {name: load_method(name)[1] for name in ("ldn", "autogrow")}
    one_shots = {name: method for name, method in methods.items() if isinstance(method, OneShotMethod)}
    checks = tried(network_rules(small(text), load_space("quickstart"), one_shots))
    untried = [check for check in checks if not check.ok]
    assert {(check.ok, check.detail) for check in untried} == {(None, "needs shrink(block, scale)")}
    assert [check.name.split()[0] for check in untried] == ["a", "autogrow"]
    assert closing(checks) == "7 rules hold, 2 were not tried."


# --- models ---------------------------------------------------------------------------------------------------------


def saved_model() -> tuple[Path, np.ndarray]:
    space = space_with(VIT.read_text(), "network.width=8", name="my_vit.py")
    trial, data = TrialConfig.of(space, FIXED_DEPTH, 2, 0), images()
    network = build_network(trial, data.sample_shape, data.n_classes).eval()
    assert isinstance(network, FixedDepthNet)
    save_model(Path("model.pt"), network, 2, trial, data)
    Path("network.py").write_text(VIT.read_text())
    with torch.inference_mode():
        expected = load_model(Path("model.pt"))(torch.from_numpy(data.x[:5])).exp().numpy()
    networks._own.clear()
    return Path("model.pt"), expected


def test_code_in_a_model_is_run_only_where_that_is_asked_for() -> None:
    from harness.training.predict import Predictor

    path, expected = saved_model()
    rows = images().x[:5]
    with pytest.raises(UserError, match=r"my_vit.py, which is run only if you say so: give trust_code=True .*network="):
        Predictor.load(path)
    assert networks._own == {}
    np.testing.assert_array_equal(Predictor.load(path, trust_code=True).predict_proba(rows), expected)
    source = networks.hash_of(VIT.read_text())
    network_class = networks._own[source][1]
    networks._own.clear()
    np.testing.assert_array_equal(Predictor.load(path, network=network_class).predict_proba(rows), expected)
    networks._own.clear()
    Path("network.py").write_text(VIT.read_text() + "# changed\n")
    with pytest.raises(UserError, match=r"is not the code that model.pt was made with"):
        Predictor.load(path, trust_code=True)
    Path("network.py").unlink()
    with pytest.raises(UserError, match=r"there is no network.py"):
        Predictor.load(path, trust_code=True)


def test_the_example_is_short() -> None:
    assert len(VIT.read_text().splitlines()) <= 70


def test_a_file_edited_between_seeds_is_told_before_training(tmp_path: Path) -> None:
    first, second = space_with(), space_with(PLAIN + "# edited\n")
    [unit] = make_units(space=first, methods=("ldn",), seeds=(0,))
    plan = unit.plan.model_copy(update={"space": first})
    folder = tmp_path / "results" / plan.space.name / "ldn" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(plan.model_dump_json())
    check_same_network(tmp_path / "results", plan.model_copy(update={"seed": 1}))
    with pytest.raises(UserError, match=r"mine.py was edited since .*ldn/seed-0 began"):
        check_same_network(tmp_path / "results", plan.model_copy(update={"seed": 1, "space": second}))


@pytest.mark.slow
def test_it_predicts_where_this_package_is_not() -> None:
    space = space_with(VIT.read_text(), name="my_vit.py")
    assert predicts_elsewhere(space.network) == "36 rows"
    lacking = space_with("import harness.seeds\n" + PLAIN)
    with pytest.raises(UserError, match=r"No module named 'harness.seeds'"):
        predicts_elsewhere(lacking.network)


@pytest.mark.slow
def test_from_nothing_to_a_report_and_a_model_that_predicts_elsewhere(tmp_path: Path) -> None:
    """The commands of docs/own_network.md, on a space of a few epochs; then the file is edited."""
    (tmp_path / "my_vit.py").write_text(VIT.read_text())
    (tmp_path / "vit.yaml").write_text(
        "data: {kind: digits, as_images: true}\nnetwork: {kind: my_vit.py, width: 16}\ndepth: {max: 1}\n"
        "training: {optimiser: adamw, lr: 0.003, schedule: cosine, crop: 1, max_epochs: 2, batch_size: 128}\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harness", *words]
        environment = {**os.environ, "PYTHONPATH": str(VIT.parent.parent.parent)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
        )

    done = run("run", "vit.yaml", "--methods", "ldn,grid", "--seeds", "0", "--refit")
    assert done.returncode == 0, done.stderr + done.stdout
    unit = tmp_path / "results" / "vit" / "ldn" / "seed-0"
    assert json.loads((unit / "plan.json").read_text())["space"]["network"]["source"] == networks.hash_of(
        VIT.read_text()
    )
    assert (unit / "network.py").read_text() == VIT.read_text() and (tmp_path / "results/vit/report.html").is_file()
    logged = next(path.parent for path in tmp_path.rglob("MLmodel"))
    np.save(tmp_path / "rows.npy", np.zeros((3, 8, 8, 1), dtype=np.uint8))
    elsewhere = [sys.executable, "-c", WITHOUT_THIS_PACKAGE, str(logged), str(tmp_path / "rows.npy")]
    predicted = subprocess.run(elsewhere, cwd="/", capture_output=True, text=True, check=False)
    assert predicted.returncode == 0, predicted.stderr
    assert np.array(json.loads(predicted.stdout.strip().splitlines()[-1])).shape == (3, 10)
    (tmp_path / "my_vit.py").write_text(VIT.read_text() + "# edited\n")
    edited = run("run", "vit.yaml", "--methods", "ldn,grid", "--seeds", "1")
    assert edited.returncode == 2 and "my_vit.py was edited since" in edited.stderr
    assert not (tmp_path / "results" / "vit" / "ldn" / "seed-1").exists()
