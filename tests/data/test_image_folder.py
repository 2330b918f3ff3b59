import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from harness.data import image_folder, memory
from harness.errors import UserError
from harness.schema.settings import ImageFolderData
from harness.training.one_trial import run_one
from tests.tiny import CONV, config

from .tiny_files import pixels

N = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of five 8×8 colour PNGs, and files that are no images."""
    root = tmp_path / "animals"
    for number, name in enumerate(("cat", "ant", "bee")):
        (root / name).mkdir(parents=True)
        for i, image in enumerate(pixels(N, 8, 8, 3)):
            Image.fromarray(image + np.uint8(number)).save(root / name / f"{i}.png")
    (root / "ant" / "notes.txt").write_text("not an image")
    (root / ".hidden").mkdir()
    (root / "readme.txt").write_text("not a class")
    return root


def settings(root: Path, **values: Any) -> ImageFolderData:
    return ImageFolderData.model_validate({"kind": "image_folder", "path": str(root), "size": 8, **values})


def refused(root: Path, message: str, **values: Any) -> None:
    with pytest.raises(UserError, match=message) as caught:
        image_folder.load_pool(settings(root, **values), None)
    assert "\n" not in str(caught.value)


def test_every_image_is_in_pool_or_test_with_its_class(folder: Path) -> None:
    pool, test = image_folder.load_pool(settings(folder), None), image_folder.load_test(settings(folder), None)
    assert pool.x.dtype == np.uint8 and pool.x.shape == (12, 8, 8, 3) and pool.n_classes == 3
    assert np.bincount(test.y).tolist() == [1, 1, 1]
    seen = {(int(y), x.tobytes()) for part in (pool, test) for x, y in zip(part.x, part.y, strict=True)}
    expected = {
        (label, (image + np.uint8(number)).tobytes())
        for label, number in enumerate((1, 2, 0))  # ant, bee, cat: sorted
        for image in pixels(N, 8, 8, 3)
    }
    assert seen == expected


def test_images_are_resized(folder: Path) -> None:
    Image.fromarray(pixels(1, 40, 17, 3)[0]).save(folder / "ant" / "other.jpg")
    assert image_folder.load_pool(settings(folder, size=12), None).x.shape[1:] == (12, 12, 3)


def test_grey_images_have_one_channel_and_16_bits_are_scaled(tmp_path: Path) -> None:
    for name, value in (("dark", 2), ("light", 200)):
        (tmp_path / name).mkdir()
        for i in range(N):
            Image.fromarray(np.full((8, 8), value, np.uint8)).save(tmp_path / name / f"{i}.png")
        Image.fromarray(np.full((8, 8), value * 257, np.uint16)).save(tmp_path / name / "deep.png")
    pool = image_folder.load_pool(settings(tmp_path), None)
    assert pool.x.shape[1:] == (8, 8, 1)
    assert [np.unique(pool.x[pool.y == label]).tolist() for label in (0, 1)] == [[2], [200]]


def test_decoded_once_until_a_file_or_the_size_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Any] = []
    decode_all = image_folder._decode_all

    def counted(*given: Any) -> Any:
        decoded.append(given)
        return decode_all(*given)

    monkeypatch.setattr(image_folder, "_decode_all", counted)
    first = image_folder.load_pool(settings(folder), None)
    np.testing.assert_array_equal(image_folder.load_pool(settings(folder), None).x, first.x)
    assert len(decoded) == 1
    image_folder.load_pool(settings(folder, size=9), None)
    assert len(decoded) == 2
    Image.fromarray(pixels(N, 8, 8, 3)[0]).save(folder / "ant" / "new.png")
    assert len(image_folder.load_pool(settings(folder), None).y) == 13
    os.utime(folder / "ant" / "new.png", ns=(1, 1))
    image_folder.load_pool(settings(folder), None)
    assert len(decoded) == 3, "another time is no other image"
    other = bytearray((folder / "ant" / "new.png").read_bytes())
    Image.fromarray(255 - pixels(N, 8, 8, 3)[0]).save(folder / "ant" / "new.png")
    size = (folder / "ant" / "new.png").stat().st_size
    (folder / "ant" / "new.png").write_bytes((folder / "ant" / "new.png").read_bytes() + b"\0" * (len(other) - size))
    os.utime(folder / "ant" / "new.png", ns=(1, 1))
    image_folder.load_pool(settings(folder), None)
    assert len(decoded) == 4, "another image of the same time is one"


def test_nothing_is_decoded_while_a_trial_trains_and_is_tested(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image_folder.load_pool(settings(folder), None)

    def opened(*args: Any) -> None:
        raise AssertionError("an image was opened")

    monkeypatch.setattr(Image, "open", opened)
    trial = config("ldn", 1, data=settings(folder).model_dump(), network=CONV, max_epochs=2)
    report = run_one(trial, device=torch.device("cpu"), test=True)
    assert report.record.cost.epochs == 2 and report.test is not None and report.test.n_test == 3


def test_a_damaged_cache_is_decoded_again(folder: Path, tmp_path: Path) -> None:
    first = image_folder.load_pool(settings(folder), None)
    (cached,) = (tmp_path / "cache").rglob("*.npy")
    cached.write_bytes(cached.read_bytes()[:200])
    np.testing.assert_array_equal(image_folder.load_pool(settings(folder), None).x, first.x)
    assert sorted(file.name for file in cached.parent.iterdir()) == [cached.name]


def test_a_cache_that_cannot_be_written_costs_a_warning(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert len(image_folder.load_pool(settings(folder), None).y) == 12
    assert "could not be saved" in caplog.text


def test_broken_images_are_named_together(folder: Path) -> None:
    whole = (folder / "bee" / "2.png").read_bytes()
    (folder / "bee" / "2.png").write_bytes(whole[: len(whole) // 2])
    (folder / "cat" / "0.png").write_bytes(b"")
    refused(folder, r"broken: bee/2\.png \(.+\), cat/0\.png \(.+\)$")


def test_images_of_floats_are_refused(folder: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.float32)).save(folder / "ant" / "float.tif")
    refused(folder, r"broken: ant/float\.tif \(an image of floats has no known range")


def test_bad_folders(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "there is no folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "for each of at least two classes; found none")
    refused(folder.parent / "animals" / "ant", "at least two classes; found none")
    (tmp_path / "one" / "ant").mkdir(parents=True)
    refused(tmp_path / "one", "at least two classes; found ant")
    (folder / "dog").mkdir()
    refused(folder, r"must hold images \(.*\.png.*\); there are none in dog")
    Image.fromarray(pixels(1, 8, 8, 3)[0]).save(folder / "dog" / "0.png")
    refused(folder, r"at least 3 samples of every class.*too few have: dog \(1\); remove the rows")


def with_parts(folder: Path, *parts: str) -> Path:
    """The same three classes in each part; every part's images differ from the others' by a number."""
    root = folder.parent / "parts"
    for number, part in enumerate(parts):
        for name in ("cat", "ant", "bee"):
            (root / part / name).mkdir(parents=True)
            for i, image in enumerate(pixels(N, 8, 8, 3)):
                Image.fromarray(image // 2 + np.uint8(60 * number)).save(root / part / name / f"{i}.png")
    return root


def test_train_val_and_test_folders_are_the_parts(folder: Path) -> None:
    root = with_parts(folder, "train", "validation", "Test")
    pool, test = image_folder.load_pool(settings(root), None), image_folder.load_test(settings(root), None)
    assert pool.class_names == ("ant", "bee", "cat") and pool.val_rows is not None
    assert (len(pool.y), len(pool.val_rows), len(test.y)) == (30, 15, 15)
    first = (pixels(N, 8, 8, 3) // 2).astype(int)
    for rows, number in ((pool.x[:15], 0), (pool.x[pool.val_rows], 1), (test.x, 2)):
        assert {row.tobytes() for row in rows} == {(image + 60 * number).astype(np.uint8).tobytes() for image in first}


def test_without_a_test_folder_the_training_images_give_one(folder: Path) -> None:
    root = with_parts(folder, "train", "val")
    pool, test = image_folder.load_pool(settings(root), None), image_folder.load_test(settings(root), None)
    assert (len(pool.y), np.bincount(test.y).tolist()) == (12 + 15, [1, 1, 1])


def test_bad_parts(folder: Path) -> None:
    root = with_parts(folder, "train", "test")
    (root / "test" / "dog").mkdir()
    Image.fromarray(pixels(1, 8, 8, 3)[0]).save(root / "test" / "dog" / "0.png")
    refused(root, "parts/test must hold only classes that .*parts/train has; it also holds dog")
    (root / "training").mkdir()
    refused(root, "must have one folder for a part; train and training are two")
    (root / "training").rmdir()
    (root / "train").rename(root / "val")
    refused(root, "must hold train/ beside test, val; it does not")


def test_a_folder_larger_than_memory_says_what_it_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    refused(folder, r"animals at size 8192 would need about 5\.6 GiB of memory, but only 1\.0 GiB", size=8192)
