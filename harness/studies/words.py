"""What settings and data sets are called in figures and on the page."""

from pathlib import Path

from harness.studies.definition import BASE, Cell, Value

# setting → its axis, with the unit, and how one value of it is said
_SETTINGS = {
    "depth.max": ("largest depth D (blocks)", "D = {}"),
    "network.width": ("width (units)", "width {}"),
    "data.rotation_degrees": ("rotation (degrees)", "{}°"),
    "data.n_train": ("training points", "{} points"),
    "training.max_epochs": ("training length (epochs)", "{} epochs"),
}
_DATA_SETS = {
    "fashion_mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
}  # by how a base's name begins


def axis_of(key: str) -> str:
    return _SETTINGS[key][0] if key in _SETTINGS else key


def data_set_of(base: Value) -> str:
    """`fashion_mnist_small` → Fashion-MNIST small."""
    name = Path(str(base)).stem
    begin = next((begin for begin in _DATA_SETS if name.startswith(begin)), "")
    return f"{_DATA_SETS.get(begin, '')}{name.removeprefix(begin).replace('_', ' ')}"


def name_of(cell: Cell) -> str:
    """`SVHN, D = 50`; the space's own name where nothing varies."""
    return ", ".join(_said(key, value) for key, value in cell.values.items()) or cell.space.name


def _said(key: str, value: Value) -> str:
    if key == BASE:
        return data_set_of(value)
    number = value if isinstance(value, str) else f"{value:,}"
    return _SETTINGS[key][1].format(number) if key in _SETTINGS else f"{key} {number}"
