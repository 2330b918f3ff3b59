import pytest

from harness.spaces import load_space


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "svhn", "cifar10"])
def test_the_papers_settings(name: str) -> None:
    space = load_space(name)
    assert space.data.kind == name
    assert space.network.model_dump() == {"kind": "conv", "channels": 64, "bottleneck": 32, "head_bn": "per_depth"}
    assert space.depth.max == 50 and space.posterior.rule == "threshold"
    training = space.training
    assert (training.batch_size, training.lr, training.momentum) == (512, 0.1, 0.5)
    assert (training.lr_drop_epoch, training.lr_drop_factor) == (30, 0.1)
    assert (training.max_epochs, training.patience, training.monitor) == (500, 30, "val_objective")
    assert (training.min_delta, training.eval_every) == (1e-4, 1)
    assert space.data.model_dump()["val_fraction"] == 0.1


def test_the_small_space_is_small() -> None:
    space = load_space("fashion_mnist_small")
    assert space.data.model_dump()["n_train"] == 6000
    assert (space.depth.max, space.training.max_epochs, space.training.batch_size) == (8, 12, 128)
