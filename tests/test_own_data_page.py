import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.data import arrays, load_pool, load_training_data
from harness.schema.records import TrialConfig
from harness.schema.settings import ArraysData
from harness.spaces import parse_space
from harness.training.train import run_trial

NETWORK_PAGE = Path(__file__).parent.parent / "docs" / "own_network.md"
PAGE = Path(__file__).parent.parent / "docs" / "own_data.md"


def test_the_pages_search_space_loads_data_of_its_kind(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    space = parse_space({"name": "my_space", **yaml.safe_load(block)}, source=str(PAGE))
    assert isinstance(space.data, ArraysData)
    y = np.arange(6000) % 10
    np.savez(tmp_path / space.data.path, x_train=np.zeros((6000, 6, 6, 3), np.uint8), y_train=y)
    assert len(arrays.load_pool(space.data, tmp_path).y) == 4000


def test_the_space_of_the_page_on_networks_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", NETWORK_PAGE.read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(NETWORK_PAGE.parent / "examples")
    space = parse_space({"name": "vit", **yaml.safe_load(block)}, source=str(NETWORK_PAGE))
    shorter = space.training.model_copy(update={"max_epochs": 2})
    trial = TrialConfig.of(space, "ldn", 2, 0).model_copy(update={"training": shorter})
    data = load_training_data(space.data, 0, load_pool(space.data))
    assert run_trial(trial, data).progress.stop_reason == "cap"
