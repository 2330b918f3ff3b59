"""What is settled before the first trial: files that are sent stay the same data; what is missing has a sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from PIL import Image

from harness.data import data_hash, load_pool, own_files
from harness.running.ahead import what_is_missing
from harness.running.messages import NOTHING_SENT, OwnCode, SentData
from harness.schema.settings import ArraysData, ImageFolderData, SpiralsData, TableData

NOTHING = OwnCode({}, [])


def arrays(folder: Path) -> ArraysData:
    np.savez(folder / "own.npz", x_train=np.random.default_rng(0).normal(size=(60, 3)), y_train=np.arange(60) % 3)
    return ArraysData(kind="arrays", path="own.npz")


def table(folder: Path) -> TableData:
    rows = "\n".join(f"{number},{number % 2},{'ab'[number % 2]}" for number in range(60))
    (folder / "own.csv").write_text(f"x,z,y\n{rows}\n")
    return TableData(kind="table", path="own.csv", target="y")


def images(folder: Path) -> ImageFolderData:
    for number in range(24):
        place = folder / "pictures" / "ab"[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), color=number).save(place)
    return ImageFolderData(kind="image_folder", path="pictures", size=4)


@pytest.mark.parametrize("make", [arrays, table, images])
def test_data_that_was_sent_is_the_same_data(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "get", lambda reference: reference)
    settings = make(tmp_path)
    expected, pool = data_hash(settings), load_pool(settings)
    files = {name: file.read_bytes() for name, file in own_files(settings).items()}
    sent = SentData({settings.model_dump_json(): files})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # a machine that has no such file
    assert not Path(settings.path).exists()
    with sent.at_hand(settings) as there:
        assert data_hash(there) == expected
        again = load_pool(there)
        assert isinstance(there, ArraysData | TableData | ImageFolderData)
        place = Path(there.path)
    assert (
        pool is not None and again is not None and np.array_equal(pool.x, again.x) and np.array_equal(pool.y, again.y)
    )
    assert not place.exists(), "the files stay on the machine"


def test_other_data_is_left_where_it_is() -> None:
    settings = SpiralsData(kind="spirals")
    assert own_files(settings) == {}
    with NOTHING_SENT.at_hand(settings) as there:
        assert there is settings


def test_data_that_a_machine_lacks_has_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = arrays(tmp_path)
    expected = data_hash(settings)
    assert expected is not None
    began_in = Path.cwd()
    assert what_is_missing(NOTHING, [(settings, expected)], None, str(tmp_path)) is None
    (tmp_path / "own.npz").write_bytes(b"other bytes")
    said = what_is_missing(NOTHING, [(settings, expected)], None, str(tmp_path))
    assert said and "does not have own.npz as the driver has it" in said and "1.0 GiB" in said
    assert Path.cwd() == began_in


def test_a_network_file_that_does_not_import_there_has_a_sentence(tmp_path: Path) -> None:
    code = OwnCode({}, [("needy", "import a_module_that_only_the_driver_has\n")])
    said = what_is_missing(code, [], None, str(tmp_path))
    assert (
        said and "a_module_that_only_the_driver_has" in said and "installed on every node" in said and "\n" not in said
    )
