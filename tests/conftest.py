"""Settings of every test."""

import contextlib
import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import warm

# The same examples every time, and no limit by the clock: a busy machine must not fail a test.
settings.register_profile("harness", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("harness")

# As in a terminal: `nohup`, and a shell that puts the suite into the background, have them ignored, and what is ignored
# stays ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests import torch, Ray, MLflow and more: the collector would look through all of it again and again.
gc.disable()


_for_all_processes = contextlib.ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "not slow":  # most of the slow ones want it
        _for_all_processes.enter_context(warm.server())


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # tests make little garbage; to look for it took a twentieth of their time
    gc.enable()


def pytest_unconfigure() -> None:
    _for_all_processes.close()
    gc.freeze()  # the process ends, and everything with it


# Files that take more than about ten seconds, so that processes which share the suite end together.
LONGEST_FIRST = (
    *("test_ray_up.py", "test_disturbed.py", "test_readme.py", "test_on_ray.py", "test_two_nodes.py", "test_looks.py"),
    *("test_far_storage.py", "test_take_home.py", "test_models.py", "test_gpu.py", "test_compiling.py"),
    *("test_wheel.py", "test_api.py", "test_ray_session.py", "test_server.py", "test_browser.py", "test_ramp.py"),
    *("test_command.py", "test_real_run.py", "test_notebook.py", "test_fuzz.py", "test_aws.py", "test_doctor.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turns = {name: turn for turn, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: turns.get(item.path.name, len(turns)))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Small networks are faster on one thread, and sums come out the same on every machine's core count."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def short_look() -> None:
    """A forecast times each network for half a second, so that it can be trusted; tests do not ask it for that."""
    from harness.running import forecast

    forecast.TIMED_SECONDS = 0.0


@pytest.fixture
def one_ray(warm_workers: None, shared_ray: "SharedRay") -> None:
    """A Ray with two CPUs and four logical GPUs. All tests of a process share it: its start takes longer than most."""
    shared_ray.start()


@pytest.fixture
def no_ray(shared_ray: "SharedRay") -> None:
    """For a test that starts a Ray of its own, or watches the program start one."""
    shared_ray.end()


class SharedRay:
    """Started by the first test that wants it; ended for one that does not, and with the last."""

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        import ray

        from tests.running.results import local_ray

        if not ray.is_initialized():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("HARNESS_LOGICAL_GPUS", "1")  # while Ray starts, so that its workers have it
                self._running.enter_context(local_ray(num_cpus=2, num_gpus=4))

    def end(self) -> None:
        self._running.close()


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[SharedRay]:
    shared = SharedRay()
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def warm_workers() -> Iterator[None]:
    """Rays that tests start, here or in a fork, have workers with little to import."""
    with warm.server(), warm.workers():
        yield
