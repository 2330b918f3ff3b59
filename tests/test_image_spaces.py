import pytest

from harness.networks import network_of
from harness.spaces import load_space


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "svhn"])
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


@pytest.mark.parametrize("name", ["cifar10", "cifar10_small"])
def test_cifar_is_trained_as_residual_networks_are(name: str) -> None:
    space, network = load_space(name), network_of(load_space(name).network)
    assert space.network.kind == "resnet" and space.depth.min == network.least_depth()
    training = space.training
    assert (training.crop, training.flip, training.weight_decay, training.nesterov) == (4, True, 5e-4, True)
    assert (training.schedule, training.patience) == ("cosine", training.max_epochs)


def test_the_small_space_is_small() -> None:
    space = load_space("fashion_mnist_small")
    assert space.data.model_dump()["n_train"] == 6000
    assert (space.depth.max, space.training.max_epochs, space.training.batch_size) == (8, 12, 128)
