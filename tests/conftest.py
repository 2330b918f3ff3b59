"""Settings of every test."""

import pytest
import torch
from hypothesis import settings

# The same examples every time, and no limit by the clock: a busy machine must not fail a test.
settings.register_profile("harness", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("harness")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small networks are faster on one thread, and sums come out the same on every machine's core count."""
    torch.set_num_threads(1)
