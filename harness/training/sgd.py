"""Stochastic gradient descent with momentum: torch's fused kernel without what torch.optim puts around it.

For 85 tensors on a CPU that is four fifths of a step of `torch.optim.SGD`: lists of parameters, gradients and momenta
that are made up and sorted by device anew each time. It also imports torch's compiler, only to tell it to stay away,
which takes more than a second of each worker's start.
"""

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from harness.training import flat


class SGD:
    """v ← momentum · v + ∇, θ ← θ − lr · v, for all parameters that have a gradient; to the bit `torch.optim.SGD`.

    v begins at zero for all, which makes the first step the same: a parameter may get its first gradient late.
    """

    _step_supports_amp_scaling = True  # torch's GradScaler then sets `grad_scale` and `found_inf` for each step

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float) -> None:
        self.lr = lr
        self._momentum = momentum
        self._parameters = list(parameters)
        self.param_groups = [{"params": self._parameters}]  # read by torch's GradScaler
        self.momenta: list[Tensor] = []  # one buffer for those of all parameters; none where there is no momentum
        self._views: list[Tensor] = []  # of it, one for each parameter
        if momentum:
            buffer, self._views = flat.zeros_like(self._parameters)
            self.momenta = [buffer]

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        gradients = [parameter.grad for parameter in self._parameters]
        moved = [gradient is not None for gradient in gradients]
        torch._fused_sgd_(
            list(itertools.compress(self._parameters, moved)),
            [gradient for gradient in gradients if gradient is not None],
            list(itertools.compress(self._views, moved)),
            weight_decay=0.0,
            momentum=self._momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )
