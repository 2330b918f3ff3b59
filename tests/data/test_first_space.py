"""`harness init`: what it writes runs as it is, nothing is overwritten, and bad data are one sentence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from harness.cli import main
from harness.data import load_pool, load_training_data
from harness.data.first_space import first_space, name_for
from harness.schema.settings import SearchSpace
from harness.spaces import load_space, parse_space
from harness.text.strict_yaml import parse_yaml

from .test_table import LABELS, NUMBERS, WORDS, N, lines
from .tiny_files import pixels

pytestmark = pytest.mark.usefixtures("folder_without_ray")


def proposed(given: str, target: str | None = None) -> SearchSpace:
    """The space, whose data load and whose network takes them."""
    space = parse_space({"name": "mine", **parse_yaml(first_space(given, target), given)}, source=given)
    data = load_training_data(space.data, 0, load_pool(space.data))
    assert (len(data.sample_shape) == 3) == (space.network.kind == "conv")
    training = space.training
    assert training.lr_drop_epoch == 2 * training.max_epochs // 3 and training.patience == training.max_epochs
    return space


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """By the command line: what was seen, what it costs, what comes next."""
    Path("own.csv").write_text(lines(size=NUMBERS, colour=WORDS))
    with pytest.raises(SystemExit) as end:
        main(["init", "own.csv", "--target", "y"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "own.yaml: 60 rows of own.csv, 4 features, 3 classes (a, b, c), depths 0 to 8." in out
    assert "device-seconds" in out and out.endswith("next: harness run own.yaml --seeds 0,1\n")
    assert load_space("own.yaml").data.model_dump()["drop"] == ("size",)
    assert '# Left out: "size", row numbers.\n' in Path("own.yaml").read_text()
    assert (
        "# Others: tabular (`harness show tabular`), or a path to your own .py file.\n" in Path("own.yaml").read_text()
    )
    before = Path("own.yaml").read_text()
    with pytest.raises(SystemExit) as end:
        main(["init", "own.csv", "--target", "y"])
    err = capsys.readouterr().err
    assert end.value.code == 2 and "own.yaml is there already and is not overwritten" in err
    assert Path("own.yaml").read_text() == before and sorted(Path().iterdir()) == [Path("own.csv"), Path("own.yaml")]


def test_an_untidy_table_runs_as_it_is() -> None:
    """Row numbers, an id, dates, numbers with a word among them, missing values, semicolons."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"p{row}" for row in range(N)],
            "day": [f"2026-01-{1 + row % 28:02d}" for row in range(N)],
            "grade": ["1", "2", "none"] * (N // 3),
            "size": np.where(np.arange(N) % 7 == 0, np.nan, rng.normal(size=N)),
            "colour": WORDS,
            "kind of: thing": [LABELS[row % 3] for row in range(N)],
        }
    )
    frame.to_csv("own.csv", sep=";")
    text = first_space("own.csv", "kind of: thing")
    space = proposed("own.csv", "kind of: thing")
    assert space.data.model_dump(exclude={"kind", "path", "target"}) == {
        "drop": ("", "id", "day"),
        "categorical": ("grade",),
        "missing": "median",
        "separator": ";",
        "n_train": None,
        "n_test": None,
        "val_fraction": 0.25,
        "test_fraction": 0.2,
    }
    assert '# Left out: "id", 60 different words in 60 rows.\n' in text
    assert '# Values are missing in "size" (9): the median of the training rows stands in for them.\n' in text


def test_parquet_and_arrays_and_folders() -> None:
    frame = pd.DataFrame({"size": np.arange(N) / 3, "y": [LABELS[row % 3] for row in range(N)]})
    frame.to_parquet("own.parquet")
    assert proposed("own.parquet", "y").network.kind == "fc"
    y = np.arange(N) % 3
    np.savez("rows.npz", x_train=np.random.default_rng(0).normal(size=(N, 4)), y_train=y)
    assert proposed("rows.npz").network.kind == "fc"
    np.savez("images.npz", x_train=pixels(N, 8, 8, 3), y_train=y, x_val=pixels(9, 8, 8, 3), y_val=y[:9])
    images = proposed("images.npz")
    assert images.network.kind == "conv" and images.data.model_dump()["val_fraction"] == 0.1, "x_val is used"
    for part in ("train", "test"):
        for number, image in enumerate(pixels(N, 10, 14, 3)):
            file = Path("animals") / part / LABELS[number % 3] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    assert proposed("animals").data.model_dump()["size"] == 12


def test_a_large_set_of_images_gets_a_subset() -> None:
    y = np.arange(9000) % 3
    np.savez("images.npz", x_train=np.zeros((9000, 6, 6, 1), np.uint8), y_train=y)
    space = proposed("images.npz")
    assert space.data.model_dump()["n_train"] == 6000 and space.training.max_epochs == 12


@pytest.mark.parametrize("n", [30, 100, 1_000, 10_000, 100_000])
def test_a_schedule_fits_the_number_of_rows(n: int) -> None:
    """Batches small enough for several steps an epoch; neither a handful of steps nor hours of them."""
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=n), "y": [LABELS[row % 3] for row in range(n)]})
    frame.to_csv("own.csv", index=False)
    training = yaml.safe_load(first_space("own.csv", "y"))["training"]
    steps = -(-round(0.6 * n) // training["batch_size"])
    assert steps >= 2 and 12 <= training["max_epochs"] <= 60
    assert 100 <= steps * training["max_epochs"] <= 3000 and training["max_epochs"] % training["report_every"] == 0


def test_names_of_spaces() -> None:
    assert name_for(Path("wine.csv")) == "wine" and name_for(Path("a b/ü wein (2).csv")) == "wein_2_"
    assert name_for(Path("digits.csv")) == "my_digits", "the shipped one has its own results"


def write(text: str | bytes, name: str = "own.csv") -> Callable[[], None]:
    def prepare() -> None:
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return prepare


@pytest.mark.parametrize(
    ("prepare", "args", "sentence"),
    [
        (
            write(lines(size=NUMBERS)),
            ("own.csv",),
            "own.csv needs --target, the column that holds the classes; it has s",
        ),
        (write(lines(size=NUMBERS)), ("own.csv", "--target", "z"), "own.csv has no column 'z'; it has size, y"),
        (
            write(lines(a=WORDS, b=WORDS).replace("b", "a", 1)),
            ("own.csv", "--target", "y"),
            "more than one is called 'a'",
        ),
        (
            write(lines(size=NUMBERS) + "1\n"),
            ("own.csv", "--target", "y"),
            "must have as many values as there are names",
        ),
        (write(lines(size=NUMBERS, y=["a"] * N)), ("own.csv", "--target", "y"), "at least two classes; it holds one"),
        (
            write(lines(size=WORDS, y=np.arange(N) / 7)),
            ("own.csv", "--target", "y"),
            "this harness compares classifiers",
        ),
        (
            write("caf\xe9,y\n1,a\n".encode("latin-1")),
            ("own.csv", "--target", "y"),
            "must be written in UTF-8; the byte",
        ),
        (
            write("no parquet", "own.parquet"),
            ("own.parquet", "--target", "y"),
            "must be a complete Parquet file; reading",
        ),
        (write("no archive", "own.npz"), ("own.npz",), "own.npz must be a complete .npz file"),
        (
            write("x", "own.txt"),
            ("own.txt",),
            "the data must be a .csv, .parquet or .npz file or a folder of images; got",
        ),
        (
            lambda: Path("empty").mkdir(),
            ("empty",),
            "empty must hold a folder of images for each of at least two classes",
        ),
        (lambda: None, ("gone.csv", "--target", "y"), "data.path must name a table; there is no file gone.csv"),
        (lambda: None, ("/proc/self", "--target", "y"), "the data must be on a disk, not in /proc or /sys"),
        (
            write(lines(size=WORDS)),
            ("own.csv", "--target", "y", "--name", "a/b"),
            "must be a name of letters, digits, _, . and -; got 'a/b'",
        ),
    ],
)
def test_bad_data_are_one_sentence(
    prepare: Callable[[], None], args: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    before = sorted(Path().rglob("*"))
    with pytest.raises(SystemExit) as end:
        main(["init", *args])
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    assert sentence in err and sorted(Path().rglob("*")) == before
