import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.seeds import numpy_generator, stream, torch_generator, torch_seeded


def test_streams_are_fixed_for_ever() -> None:
    """Records of yesterday must be reproducible tomorrow: the derivation of seeds may not change."""
    assert stream(0, "init", "ddn", 5) == 4668300504333229564
    assert stream(0, "order") == 6886801495480849579


@given(st.integers(0, 10**6), st.sampled_from(["split", "init", "order", "searcher"]), st.integers(0, 50))
def test_names_and_seeds_give_streams_of_their_own(seed: int, name: str, depth: int) -> None:
    assert stream(seed, name, depth) == stream(seed, name, depth)
    others = {stream(seed + 1, name, depth), stream(seed, name + "x", depth), stream(seed, name, depth + 1)}
    assert stream(seed, name, depth) not in others
    assert 0 <= stream(seed, name) < 2**63


def test_a_number_and_its_text_are_different_names() -> None:
    assert stream(0, "init", 1) != stream(0, "init", "1")
    assert stream(0, "ab", "c") != stream(0, "a", "bc")


def test_generators_do_not_influence_each_other() -> None:
    order = torch_generator(3, "order")
    first = torch.randperm(10, generator=order)
    torch_generator(3, "order")
    numpy_generator(3, "order").random(5)
    second = torch.randperm(10, generator=order)
    again = torch_generator(3, "order")
    assert torch.equal(first, torch.randperm(10, generator=again))
    assert torch.equal(second, torch.randperm(10, generator=again))


def test_torch_seeded_gives_the_global_state_back() -> None:
    before = torch.get_rng_state()
    with torch_seeded(1, "init"):
        a = torch.rand(3)
    assert torch.equal(before, torch.get_rng_state())
    with torch_seeded(1, "init"):
        assert torch.equal(a, torch.rand(3))
