"""Settings of every test."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small networks are faster on one thread, and sums come out the same on every machine's core count."""
    torch.set_num_threads(1)
