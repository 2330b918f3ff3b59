"""The distribution over depths: prior β, posterior q, KL(q ‖ β), and the one place where d_opt is read from q."""

import torch
from torch import Tensor, nn

from harness.spaces import ExplicitPrior, ExponentialPrior, PriorSettings, Rule

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


class DepthPosterior(nn.Module):
    """q(d) = softmax(logits) over depths 0…D, learnt by gradient together with the weights."""

    log_beta: Tensor

    def __init__(self, log_beta: Tensor, logits: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("log_beta", log_beta)
        self.logits = nn.Parameter(torch.zeros_like(log_beta) if logits is None else logits)

    def log_q(self) -> Tensor:
        return torch.log_softmax(self.logits, dim=0)  # (D+1,)

    def probabilities(self) -> Tensor:
        """q in float64, on the CPU: what is written down."""
        return torch.softmax(self.logits.detach().double(), dim=0).cpu()

    def kl(self) -> Tensor:
        """KL(q ‖ β) = Σ_i q_i (log q_i − log β_i), in nats."""
        log_q = self.log_q()
        return (log_q.exp() * (log_q - self.log_beta)).sum()

    def pruned(self, depth: int) -> "DepthPosterior":
        """q'(i) = q(i) below `depth`, q'(depth) = q(d ≥ depth); the prior is folded in the same way."""

        def fold(log_p: Tensor) -> Tensor:
            return torch.cat([log_p[:depth], log_p[depth:].logsumexp(dim=0, keepdim=True)])

        return DepthPosterior(fold(self.log_beta), logits=fold(self.log_q().detach()))
