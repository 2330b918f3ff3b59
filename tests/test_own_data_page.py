import re
from pathlib import Path

import numpy as np
import yaml

from harness.data import arrays
from harness.schema.settings import ArraysData
from harness.spaces import parse_space

PAGE = Path(__file__).parent.parent / "docs" / "own_data.md"


def test_the_pages_search_space_loads_data_of_its_kind(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    space = parse_space({"name": "my_space", **yaml.safe_load(block)}, source=str(PAGE))
    assert isinstance(space.data, ArraysData)
    y = np.arange(6000) % 10
    np.savez(tmp_path / space.data.path, x_train=np.zeros((6000, 6, 6, 3), np.uint8), y_train=y)
    assert len(arrays.load_pool(space.data, tmp_path).y) == 4000
