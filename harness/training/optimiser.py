"""Optimisers: torch's fused kernels without what torch.optim puts around them, and which parameters they move how.

For 85 tensors on a CPU that is four fifths of a step of `torch.optim.SGD`: lists of parameters, gradients and momenta
that are made up and sorted by device anew each time. It also imports torch's compiler, only to tell it to stay away,
which takes more than a second of each worker's start.

A new optimiser is a class with these two methods, a name in `optimiser_of`, and its settings in schema/settings.py.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from harness.models import DepthNet, OneShotNet
from harness.schema.settings import PosteriorSettings, TrainingSettings
from harness.training import flat

State = Sequence[Tensor]  # of one parameter
RATE_OF_Q = 0.1  # where the weights are not trained by SGD, whose rate it then shares


class Rule(Protocol):
    """How parameters are moved by their gradients. Equal rules move their parameters in one call."""

    @property
    def lr(self) -> float: ...

    def state(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Buffers of zeros, which checkpoints hold, and for each kind of number its view for every parameter."""

    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], lr: float, scaling: Any
    ) -> None:
        """Moves those parameters that have a gradient. `scaling` is the GradScaler's `grad_scale` and `found_inf`."""


@dataclass(frozen=True)
class SGD:
    """v ← momentum · v + (∇ + decay · θ), θ ← θ − lr · v; to the bit `torch.optim.SGD`.

    v begins at zero for all, which makes the first step the same: a parameter may get its first gradient late.
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def state(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
        if not self.momentum:
            return [], [[]]
        buffer, momenta = flat.zeros_like(parameters)
        return [buffer], [momenta]

    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], lr: float, scaling: Any
    ) -> None:
        torch._fused_sgd_(
            parameters,
            gradients,
            state[0],
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=lr,
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,
            **scaling,
        )


@dataclass(frozen=True)
class AdamW:
    """m ← β_1·m + (1−β_1)·∇, s ← β_2·s + (1−β_2)·∇², θ ← (1 − lr·decay)·θ − lr · m̂ / (√ŝ + ε), m̂ and ŝ without the
    bias of beginning at zero; to the bit `torch.optim.AdamW`. Every parameter counts its own steps.
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0

    def state(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
        (mean, means), (square, squares) = flat.zeros_like(parameters), flat.zeros_like(parameters)
        steps = torch.zeros(len(parameters), device=parameters[0].device)
        return [mean, square, steps], [means, squares, list(steps.unbind())]

    def step(
        self, parameters: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], lr: float, scaling: Any
    ) -> None:
        means, squares, steps = state
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            **scaling,
        )
        if scaling["found_inf"] is not None:  # then nothing was moved
            torch._foreach_sub_(steps, [scaling["found_inf"]] * len(steps))


class Optimiser:
    """Moves groups of parameters, each by its rule. `factor` is what all rates are multiplied by at a step."""

    _step_supports_amp_scaling = True  # torch's GradScaler then sets `grad_scale` and `found_inf` for each step

    def __init__(self, groups: Mapping[Rule, Sequence[nn.Parameter]]) -> None:
        self.factor = 1.0
        self.state: list[Tensor] = []  # a few buffers for all parameters
        self._groups: list[tuple[Rule, Sequence[nn.Parameter], list[list[Tensor]]]] = []
        for rule, parameters in groups.items():
            buffers, views = rule.state(parameters)
            self.state += buffers
            self._groups.append((rule, parameters, views))
        self.param_groups = [{"params": list(parameters)} for parameters in groups.values()]  # read by the GradScaler

    def zero_grad(self) -> None:
        for _, parameters, _ in self._groups:
            for parameter in parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        scaling = {name: getattr(self, name, None) for name in ("grad_scale", "found_inf")}
        for rule, parameters, state in self._groups:
            gradients = [parameter.grad for parameter in parameters]
            moved = [gradient is not None for gradient in gradients]
            if any(moved):
                rule.step(
                    list(itertools.compress(parameters, moved)),
                    [gradient for gradient in gradients if gradient is not None],
                    [list(itertools.compress(views, moved)) for views in state],
                    rule.lr * self.factor,
                    scaling,
                )


def optimiser_of(network: DepthNet, settings: TrainingSettings, posterior: PosteriorSettings) -> Optimiser:
    """Weights over depths are a distribution: they are trained by SGD at a rate of their own, and never decayed.

    Nor are biases and the scales and shifts of normalisation, which have one dimension.
    """

    def of_weights(decay: float) -> Rule:
        if settings.optimiser == "adamw":
            return AdamW(settings.lr, settings.betas, decay)
        return SGD(settings.lr, settings.momentum, settings.nesterov, decay)

    shared = settings.lr if settings.optimiser == "sgd" else RATE_OF_Q
    of_q = SGD(shared if posterior.lr is None else posterior.lr, settings.momentum)
    over_depths = set(network.posterior.parameters() if isinstance(network, OneShotNet) else ())
    groups: dict[Rule, list[nn.Parameter]] = {}
    for parameter in network.parameters():
        decay = settings.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault(of_q if parameter in over_depths else of_weights(decay), []).append(parameter)
    return Optimiser(groups)


def clip(parameters: Iterable[nn.Parameter], most: float) -> None:
    """Scales the gradients so that all of them together have no larger norm."""
    nn.utils.clip_grad_norm_(parameters, most)
