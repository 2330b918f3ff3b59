"""`harness doctor --gpu`: what it measures, here and on a pretended GPU, and what it says of one that is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.cluster import gpu
from harness.cluster.gpu import DEPTHS, DeviceReport, StepSeconds, examine, gpu_checks
from harness.errors import UserError
from harness.models.build import check_samples
from harness.networks import network_of
from harness.schema.networks import known_networks
from harness.training.networks import build_network
from tests.pretend_gpu import pretend_gpu

CPU = torch.device("cpu")
SHALLOW = {"fc": (1, 2), "conv": (1,)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and steps that a test has time for."""
    monkeypatch.setattr(gpu, "BATCH", 16)
    monkeypatch.setattr(gpu, "TIMED_EPOCHS", 2)
    monkeypatch.setattr(gpu, "CHECKPOINT_BYTES", 1000)


@pytest.mark.slow
def test_the_cpu_agrees_with_itself(small: None, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    report = examine(CPU, str(tmp_path / "storage"), SHALLOW)
    assert report.apart_nats == {"fc": 0.0, "conv": 0.0}
    assert report.repeats and report.repeats_if_deterministic
    assert [(step.network, step.depth) for step in report.steps] == [("fc", 1), ("fc", 2), ("conv", 1)]
    assert all(step.device > 0 and step.cpu > 0 for step in report.steps)
    assert report.write_seconds and report.read_seconds and not report.storage_error
    assert list((tmp_path / "storage").iterdir()) == [], "what was written was not removed"
    assert torch.get_num_threads() == threads
    assert DeviceReport.model_validate_json(report.model_dump_json()) == report
    assert all(check.ok or check.name == "cpu workers" for check in gpu_checks(report))


@pytest.mark.slow
def test_a_gpu_is_measured_and_small_networks_are_sent_to_the_cpu(small: None) -> None:
    """The pretended one computes every operation in Python on top, so that it is slow, and its numbers are right."""
    with pretend_gpu() as seen:
        report = examine(seen.device, None, SHALLOW)
        assert sum(seen.operations.values()) > 1000
    assert report.device == "a pretended GPU" and report.apart_nats == {"fc": 0.0, "conv": 0.0}
    assert report.repeats and report.memory_bytes == 2**34
    checks = {check.name: check for check in gpu_checks(report)}
    said = checks["cpu workers"]
    assert not said.ok and not said.fatal and "--gpus-per-trial 0" in said.remedy
    assert "16.0 of 16.0 GiB free" in checks["memory"].detail


def test_every_network_that_comes_with_the_harness_is_measured() -> None:
    """At depths that it has, with rows that it takes, and without dropout, which every device draws otherwise."""
    assert set(DEPTHS) == set(known_networks())
    assert DEPTHS["fc"] == (1, 10, 50) and DEPTHS["conv"] == (1, 10, 30)
    for kind, depths in DEPTHS.items():
        config, data = gpu._small_trial(kind)
        assert min(depths) >= network_of(config.network).least_depth() <= config.depth
        check_samples(config.network, data.sample_shape)
        network = build_network(config, data.sample_shape, data.n_classes)
        assert all(module.p == 0 for module in network.modules() if isinstance(module, torch.nn.Dropout))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(set(known_networks()) - set(SHALLOW)))
def test_a_discovered_network_has_the_same_numbers_on_a_gpu(kind: str, small: None) -> None:
    with pretend_gpu() as seen:
        report = examine(seen.device, None, {kind: DEPTHS[kind][:1]})
    assert list(report.apart_nats) == [kind] and report.apart_nats[kind] < gpu.FAR_APART
    assert f"{kind} steps" in {check.name for check in gpu_checks(report)}


V100 = {"capability": "7.0", "built_for": ("sm_75", "sm_80", "compute_90"), "driver": "580.1", "cuda": "13.0"}


@pytest.mark.parametrize(
    ("about", "raised", "said"),
    [
        (
            V100 | {"free_bytes": 15 * 2**30, "memory_bytes": 16 * 2**30},
            RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile with ..."),
            "has no code for capability 7.0, only for sm_75, sm_80, compute_90; install a build of torch that has it",
        ),
        (
            {"free_bytes": 2**28, "memory_bytes": 16 * 2**30},
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
            "only 0.2 of 16.0 GiB are free; end the processes that hold it (nvidia-smi lists them)",
        ),
        (
            {"free_bytes": 2**34, "memory_bytes": 2**34},
            RuntimeError("CUDA error: uncorrectable ECC error encountered"),
            "CUDA error: uncorrectable ECC error encountered; look at the machine with nvidia-smi",
        ),
    ],
)
def test_a_gpu_that_cannot_train_is_one_sentence(
    about: dict[str, Any], raised: RuntimeError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such GPU here: what torch would say is made up."""

    def fails(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(gpu, "run_trial", fails)
    monkeypatch.setattr(gpu, "_about_cuda", lambda device: about)
    with pytest.raises(UserError) as caught:
        examine(CPU, None, SHALLOW)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setenv("HARNESS_LOGICAL_GPUS", "1")
    assert gpu._examined(None, SHALLOW).startswith(f"refused: {caught.value}"), "as a worker tells it"


def test_a_storage_that_cannot_be_written_is_named(small: None, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder can be made here")
    found = gpu._about_storage(str(file / "x"))
    assert found["storage_error"]


A100 = DeviceReport(
    host="a",
    device="NVIDIA A100",
    machine="a processor",
    torch="2.13.0",
    cuda="12.8",
    driver="570.1",
    capability="8.0",
    built_for=("sm_75", "sm_80", "sm_90"),
    bfloat16=True,
    float16=True,
    memory_bytes=2**35,
    free_bytes=2**35 - 2**29,
    apart_nats={"fc": 1e-6, "conv": 2e-5},
    repeats=False,
    repeats_if_deterministic=True,
    steps=(
        StepSeconds(network="fc", depth=1, device=2e-3, cpu=1e-3),
        StepSeconds(network="fc", depth=10, device=9e-3, cpu=4e-3),
        StepSeconds(network="fc", depth=50, device=4e-2, cpu=5e-2),
        StepSeconds(network="conv", depth=1, device=3e-3, cpu=1e-1),
    ),
    storage="s3://bucket",
    write_seconds=0.21,
    read_seconds=0.1,
)


def test_a_gpu_that_is_well() -> None:
    lines = {check.name: check for check in gpu_checks(A100)}
    assert [name for name, check in lines.items() if not check.ok] == ["cpu workers"]
    assert lines["gpu"].detail == "NVIDIA A100 on a"
    assert lines["driver"].detail == "driver 570.1, torch 2.13.0 for CUDA 12.8, capability 8.0"
    assert lines["precision"].detail == "float32, bfloat16, float16"
    assert lines["repeats"].detail == "to the bit with training.deterministic, not without"
    assert lines["fc steps"].detail.startswith("depth 1: 2 (1), depth 10: 9 (4), depth 50: 40 (50) ms")
    assert lines["cpu workers"].detail == "fc networks up to depth 10 take a CPU core no longer than this GPU"
    assert lines["storage"].detail == "s3://bucket: 8 MiB written in 0.21 s, read in 0.1 s"


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        ({"capability": "6.1"}, "driver", "has no code for capability 6.1, only for sm_75, sm_80, sm_90"),
        ({"capability": "12.0"}, "driver", "has no code for capability 12.0"),
        ({"apart_nats": {"fc": 1e-6, "conv": 0.3}}, "numbers", "apart from the CPU's by fc 1.0e-06, conv 3.0e-01"),
        ({"repeats_if_deterministic": False}, "repeats", "gives other weights the second time"),
        ({"free_bytes": 2**30}, "memory", "only 1.0 of 32.0 GiB are free"),
        ({"storage_error": "no such bucket"}, "storage", "no such bucket"),
    ],
)
def test_what_is_wrong_is_fatal_and_has_a_remedy(change: dict[str, Any], name: str, words: str) -> None:
    [wrong] = [check for check in gpu_checks(A100.model_copy(update=change)) if not check.ok and check.fatal]
    assert wrong.name == name and words in wrong.detail and wrong.remedy


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ("8.9", ("sm_80",), True),  # machine code serves later GPUs of its generation
        ("8.0", ("sm_86",), False),
        ("9.0", ("sm_80",), False),
        ("9.0", ("sm_80", "compute_80"), True),  # and this any later one
        ("12.0", ("sm_100", "sm_120"), True),
    ],
)
def test_which_gpus_a_build_serves(capability: str, built_for: tuple[str, ...], runs: bool) -> None:
    about = A100.model_dump() | {"capability": capability, "built_for": built_for}
    assert gpu._check_build("2.13.0", about).ok is runs


def test_not_a_number_is_far_apart() -> None:
    report = A100.model_construct(**{**A100.__dict__, "apart_nats": {"fc": float("nan")}})
    assert not gpu._check_numbers(report).ok


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_command_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--gpu", "--report", str(report)])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no GPU can be used on ") and not report.exists()
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--gpu", "--report", str(tmp_path / "none" / "report.json")])
    assert "--report is written into a folder that exists" in capsys.readouterr().err


@pytest.mark.slow
def test_one_worker_of_each_kind_through_ray(
    one_ray: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's GPUs are logical here, so that the worker measures its CPU; all else is as it would be."""
    import ray

    monkeypatch.setattr(gpu, "DEPTHS", SHALLOW)

    address = ray.get_runtime_context().gcs_address
    report = tmp_path / "report.json"
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--gpu", "--address", address, "--storage", str(tmp_path / "s"), "--report", str(report)])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "numbers" in printed and "conv steps" in printed and "MiB written in" in printed
    [measured] = json.loads(report.read_text())
    assert measured["device"] == "cpu" and len(measured["steps"]) == 3
    assert list((tmp_path / "s").iterdir()) == []
