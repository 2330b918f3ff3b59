"""Makes `tables/*.csv`, eight classification tables, from packages that hold their rows: no download of their own.

    apt-get download r-cran-mlbench && dpkg -x r-cran-mlbench_*.deb mlbench
    python -m pip install pandas pyreadr river scikit-learn
    python docs/tools/collect_tables.py mlbench DATA_FOLDER

The harness needs none of these packages. The column `label` holds the class. Every file is checked against the sum of
its bytes that was seen when this was written; the rows (UCI and Statlog collections) are not ours to ship. The spaces
are `uci_letter` and so on: `harness run uci_vehicle --data-dir DATA_FOLDER`.
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyreadr
from river import datasets as river
from sklearn import datasets as sklearn

LABEL = "label"
MLBENCH = {  # the table → mlbench's name of it, and of its column of classes
    "letter": ("LetterRecognition", "lettr"),
    "satimage": ("Satellite", "classes"),
    "dna": ("DNA", "Class"),
    "vehicle": ("Vehicle", "Class"),
    "shuttle": ("Shuttle", "Class"),
}
SHA256 = {
    "letter": "d1ff744243c1cc17c7252b2324fcf5a21f31419531184d97ed1d815c80447ae4",
    "satimage": "4e4e48ce540b08664915b042295968a2d01084c154a7b0259a74280b223fedc0",
    "dna": "abd6f552fa0c7148c54339b4f8e45c4cfe5af0104c687de99734e79c56c4be9e",
    "vehicle": "33e64515b6562e08ecc322e3f207c90677046b3b3262cc132ebe86ea910c743d",
    "shuttle": "17c3c9848d8ac5a495cc1fb0bd54c779e020bb7a7ea75b3d7e12fb76cf15960c",
    "segment": "fef2f635b643e7cdd8e02ad42cffaddbb1b03fa9122f04d0db8d2c1bcaa84d77",
    "breast_cancer": "1c1e2163cf791696c76b93cf23226e22c590cb5ab2b7f4270637b2b8bdb7e0d8",
    "wine": "221cc035e9fde38f251f3c6f10a99e078554a7a099554edf5f20c43f37903f07",
}


def main(mlbench: Path, folder: Path) -> None:
    texts = {name: frame.to_csv(index=False, lineterminator="\n") for name, frame in tables(mlbench)}
    for name, text in texts.items():
        seen = hashlib.sha256(text.encode()).hexdigest()
        if seen != SHA256[name]:
            sys.exit(f"{name}.csv must have the sum {SHA256[name]}; these packages make one of {seen}")
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / "tables" / f"{name}.csv").write_text(text, encoding="utf-8")


def tables(mlbench: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    for name, (theirs, classes) in MLBENCH.items():
        [file] = mlbench.rglob(f"{theirs}.rda")
        yield name, pyreadr.read_r(str(file))[theirs].rename(columns={classes: LABEL})
    yield "segment", pd.read_csv(river.ImageSegments().path, dtype=str).rename(columns={"category": LABEL})
    for name, load in {"breast_cancer": sklearn.load_breast_cancer, "wine": sklearn.load_wine}.items():
        found = load(as_frame=True)
        yield name, found.data.assign(**{LABEL: found.target_names[found.target]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
