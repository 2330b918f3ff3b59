"""The optimiser that does without torch's compiler takes torch's own steps."""

import torch

from harness.training.sgd import SGD


def test_to_the_bit_the_steps_of_torch() -> None:
    rows = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))

    def trained(kind: type[torch.optim.SGD]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        network = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
        optimiser = kind(network.parameters(), 0.1, 0.9, fused=True)
        for _ in range(3):
            optimiser.zero_grad()
            network(rows).square().sum().backward()
            optimiser.step()
        return [*network.state_dict().values(), *(state["momentum_buffer"] for state in optimiser.state.values())]

    assert all(torch.equal(ours, torchs) for ours, torchs in zip(trained(SGD), trained(torch.optim.SGD), strict=True))
