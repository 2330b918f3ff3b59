"""Bad data given to the real command line: one sentence, exit code 2, no Ray, nothing written and nothing moved."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.lib import format as npy
from PIL import Image

from harness.cli import main
from harness.data import memory
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running import runner
from harness.spaces import load_space

from .test_arrays import announce
from .tiny_files import idx_bytes, labels, pixels, write_idx

N = 60
X, Y = pixels(N, 8, 8, 3), np.arange(N) % 3

SPACE: dict[str, Any] = {
    "description": "Bad data.",
    "data": {"kind": "arrays", "path": "own.npz"},
    "network": {"kind": "conv", "channels": 4, "bottleneck": 2},
    "depth": {"max": 2},
    "posterior": {"rule": "argmax"},
    "training": {"max_epochs": 1, "patience": 1},
}


pytestmark = pytest.mark.usefixtures("folder_without_ray")


@pytest.fixture(params=["run", "trial"])
def refused(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives the space to `harness run` or `harness trial`; returns the sentence."""

    def give(*args: str, data: dict[str, Any] | None = None) -> str:
        Path("mine.yaml").write_text(yaml.safe_dump({**SPACE, "data": data or SPACE["data"]}))
        command = ["run", "mine.yaml"] if request.param == "run" else ["trial", "mine.yaml", "--method", "ldn"]
        before = sorted(Path.cwd().parent.rglob("*"))
        with pytest.raises(SystemExit) as end:
            main([*command, *args])
        out, err = capsys.readouterr()
        assert end.value.code == 2 and out == ""
        assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
        assert sorted(Path.cwd().parent.rglob("*")) == before
        return err

    return give


# --- arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({"x_train": X}, "own.npz: y_train is missing (the file holds x_train)"),
        ({"x_train": X[..., None], "y_train": Y}, "x_train must be n×features, n×height×width"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :4], "y_test": Y}, "shape as x_train, (8, 8, 3); got (4, 8, 3)"),
        ({"x_train": X[:, :5, :5], "y_train": Y}, "conv needs images of at least 6×6 pixels; got 5×5"),
        ({"x_train": X.reshape(N, -1), "y_train": Y}, "conv needs images; this data set's samples are 192 features"),
        ({"x_train": X / 127.5 - 1, "y_train": Y}, "must lie in [0, 1] or all in [0, 255]; got -1 to 1"),
        ({"x_train": X * 2.0, "y_train": Y}, "must lie in [0, 1] or all in [0, 255]; got 0 to 510"),
        ({"x_train": X, "y_train": np.zeros(N, int)}, "at least two classes; it holds one, with 60 samples"),
        ({"x_train": X, "y_train": Y[1:]}, "x_train and y_train must have the same length; got (60,) and (59,)"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y + 1}, "y_test must hold only labels that y_train has"),
    ],
)
def test_arrays(contents: dict[str, np.ndarray], said: str, refused: Callable[..., str]) -> None:
    np.savez("own.npz", **contents)  # type: ignore[arg-type]  # its first keyword is a flag
    assert said in refused()


def test_a_subset_that_leaves_no_validation_samples(refused: Callable[..., str]) -> None:
    np.savez("own.npz", x_train=X, y_train=Y)
    assert "classes without a validation sample" in refused(data={**SPACE["data"], "n_train": 3})


def test_three_gigabytes_on_a_small_machine(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    announce(Path("own.npz"), (2**20, 32, 32, 3), np.uint8)
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * 2**30)
    assert "own.npz would need about 6.0 GiB of memory, but only 4.0 GiB is available" in refused()


def test_labels_that_are_small_in_the_file_and_large_in_memory(refused: Callable[..., str]) -> None:
    """Words of 300 million characters each, of which the file holds none."""
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "<U300000000", "fortran_order": False, "shape": (N,)})
    np.savez("own.npz", x_train=X)
    with zipfile.ZipFile("own.npz", "a") as archive:
        archive.writestr("y_train.npy", header.getvalue() + b"\0" * 100)
    assert "own.npz would need about 134.1 GiB of memory, but only" in refused()


# --- tables -------------------------------------------------------------------------------------------------------


def test_tables(refused: Callable[..., str]) -> None:
    """Before anything is trained: by `run` as by `trial`."""
    data = {"kind": "table", "path": "own.csv", "target": "y"}
    assert "data.path must name a table; there is no file own.csv" in refused(data=data)
    Path("own.csv").write_text("size,y\n" + "1,a\n,b\n" * 30)
    assert "rows without one: 'size' (30); data.missing: median puts" in refused(data=data)
    assert "data.target must name a column of own.csv; it has no 'z'" in refused(data={**data, "target": "z"})
    Path("own.csv").write_text("size,y\n" + "1,a\n2,b\n" * 30)
    assert "network.kind conv needs images; this data set's samples are 1 features" in refused(data=data)


# --- folders and files --------------------------------------------------------------------------------------------


def test_folders_of_images(refused: Callable[..., str]) -> None:
    data = {"kind": "image_folder", "path": "animals", "size": 8}
    root = Path("animals")
    root.mkdir()
    assert "animals must hold a folder of images for each of at least two classes; found none" in refused(data=data)
    for name in ("ant", "bee"):
        (root / name).mkdir()
        for number, image in enumerate(X[:3]):
            Image.fromarray(image).save(root / name / f"{number}.png")
    broken = root / "bee" / "2.png"
    broken.write_bytes(broken.read_bytes()[:60])
    assert "broken: bee/2.png (" in refused(data=data)
    for image in (root / "bee").iterdir():
        image.unlink()
    assert "there are none in bee" in refused(data=data)


@pytest.mark.slow
def test_another_md5_sum(refused: Callable[..., str], svhn: tuple[Path, dict[str, np.ndarray]]) -> None:
    root, _ = svhn
    (root / "test_32x32.mat").write_bytes(b"damaged")
    said = refused("--data-dir", str(root), data={"kind": "svhn"})
    assert f"{root / 'test_32x32.mat'} must have the md5 sum" in said


def test_idx_labels_that_do_not_match(refused: Callable[..., str], datasets: Any) -> None:
    write_idx(Path.cwd(), "MNIST")
    Path("MNIST/raw/train-labels-idx1-ubyte").write_bytes(idx_bytes(labels(39)))
    said = refused("--data-dir", ".", data={"kind": "mnist"})
    assert "the mnist training files in .: inputs and labels must have the same length; got 40 inputs and 39" in said


# --- what was there before ----------------------------------------------------------------------------------------


def test_results_of_good_data_stay_when_it_goes_bad(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("own.npz", x_train=X)
    Path("mine.yaml").write_text(yaml.safe_dump(SPACE))
    options = RunOptions(out=Path("results"))
    for unit in runner.make_units([load_space("mine.yaml")], parse_methods("ldn"), [0], options):
        unit.folder.claim(unit.plan, fresh=False)
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(SystemExit) as end:
        main(["run", "mine.yaml", "--methods", "ldn", "--fresh"])
    assert end.value.code == 2 and "y_train is missing" in capsys.readouterr().err
    assert sorted(Path.cwd().rglob("*")) == before  # nothing moved aside
