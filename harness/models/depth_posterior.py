"""Distributions over depths: prior β, weights q, KL(q ‖ β), and the one place where a depth is chosen."""

import torch
from torch import Tensor, nn

from harness.schema.settings import TIE_NATS, ExplicitPrior, ExponentialPrior, PriorSettings, Rule

RULES: tuple[Rule, ...] = ("argmax", "threshold", "expected")


def log_prior(settings: PriorSettings, max_depth: int) -> Tensor:
    """log β over depths 0…D. Exponential: β_i ∝ γ^(1+i)."""
    match settings:
        case ExponentialPrior():
            weights = torch.log(torch.tensor(settings.gamma, dtype=torch.float64)) * torch.arange(1, max_depth + 2)
        case ExplicitPrior():
            weights = torch.log(torch.tensor(settings.probabilities, dtype=torch.float64))
        case _:
            weights = torch.zeros(max_depth + 1, dtype=torch.float64)
    return torch.log_softmax(weights, dim=0).float()


def choose_depth(q: Tensor, rule: Rule) -> int:
    """The depth to keep, d_opt.

    argmax: argmax_i q_i · threshold: min {i : q_i ≥ 0.95 · max_j q_j} · expected: round(Σ_i i · q_i)
    """
    q = q.detach().double().cpu()
    match rule:
        case "argmax":
            return int(q.argmax())
        case "threshold":
            return int((q >= 0.95 * q.max()).nonzero()[0])
        case "expected":
            return int(torch.round((q * torch.arange(len(q))).sum()))


def best_depth(log_likelihoods: Tensor, within: float = TIE_NATS) -> int:
    """The depth to keep by validation: min {i : ℓ_i ≥ max_j ℓ_j − within}."""
    values = log_likelihoods.detach().double().cpu()
    return int((values >= values.max() - within).nonzero()[0])


class DepthWeights(nn.Module):
    """q(d) = softmax(log_weights()) over depths 0…D. A subclass says what the weights are and what changes them.

    All that is to survive a crash is a parameter (trained by gradient) or a buffer (set by a method).
    """

    log_beta: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__()
        self.register_buffer("log_beta", log_beta)  # the space's prior

    def log_weights(self) -> Tensor:
        """Log weights of depths 0…D up to a constant: (D+1,)."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_weights()")

    def log_q(self) -> Tensor:
        return torch.log_softmax(self.log_weights(), dim=0)  # (D+1,)

    def probabilities(self) -> Tensor:
        """q in float64, on the CPU: what is written down."""
        return torch.softmax(self.log_weights().detach().double(), dim=0).cpu()

    def kl(self) -> Tensor:
        """KL(q ‖ β) = Σ_i q_i (log q_i − log β_i), in nats."""
        log_q = self.log_q()
        return (log_q.exp() * (log_q - self.log_beta)).sum()

    def pruned(self, depth: int) -> "DepthPosterior":
        """q'(i) = q(i) below `depth`, q'(depth) = q(d ≥ depth); the prior is folded in the same way."""

        def fold(log_p: Tensor) -> Tensor:
            return torch.cat([log_p[:depth], log_p[depth:].logsumexp(dim=0, keepdim=True)])

        return DepthPosterior(fold(self.log_beta), logits=fold(self.log_q().detach()))


class DepthPosterior(DepthWeights):
    """Free logits, zero at first, learnt by gradient together with the weights."""

    def __init__(self, log_beta: Tensor, logits: Tensor | None = None) -> None:
        super().__init__(log_beta)
        self.logits = nn.Parameter(torch.zeros_like(log_beta) if logits is None else logits)

    def log_weights(self) -> Tensor:
        return self.logits


class SetWeights(DepthWeights):
    """Logits that the method sets itself; equal at first, and no gradient reaches them."""

    logits: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("logits", torch.zeros_like(log_beta))

    def log_weights(self) -> Tensor:
        return self.logits


class WeightsByLikelihood(SetWeights):
    """Set weights that go by ℓ_i, the mean log-likelihood of depth i over the samples of an epoch."""

    total: Tensor
    samples: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("total", torch.zeros_like(log_beta))
        self.register_buffer("samples", torch.zeros((), dtype=torch.int64, device=log_beta.device))

    def saw(self, log_likelihoods: Tensor, n: int) -> None:
        """Adds a mini-batch of n samples with these mean log-likelihoods per depth."""
        self.total.add_(log_likelihoods.detach(), alpha=n)
        self.samples.add_(n)

    def take_mean(self) -> Tensor:
        """ℓ over all samples since the last call: (D+1,)."""
        mean = self.total / self.samples
        self.total.zero_()
        self.samples.zero_()
        return mean
