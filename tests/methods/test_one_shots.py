"""What each one-shot method maximises, against computations that share no code with it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor, nn

from harness.data.on_device import on_device
from harness.methods import load_method, one_shot_method, parse_methods
from harness.methods.darts_depth import Mixture
from harness.methods.ldn_em import HeldWeights
from harness.methods.ldn_normal import NormalWeights
from harness.methods.udn import TruncatedPoisson
from harness.models import DepthMixture, FixedDepthNet, OneShotNet
from harness.models.depth_posterior import WeightsByLikelihood
from harness.models.one_shot import Epoch
from harness.models.passes import Passes
from harness.schema.identity import hashed
from harness.schema.records import FIXED_DEPTH, TrialConfig
from harness.training.final import evaluate_on_test, posterior_gap
from harness.training.networks import build_network, chosen_network
from harness.training.train import run_trial
from tests.tiny import config, conv_config, data_for, spirals, used_network

Rows = tuple[Tensor, Tensor]


def rows_of(trial: TrialConfig) -> Rows:
    rows, train_rows, _ = on_device(data_for(trial), torch.device("cpu"))
    return rows.take(train_rows)


def frozen(trial: TrialConfig) -> tuple[OneShotNet, Rows]:
    """A network whose weights and statistics stay as they are, and all training rows."""
    network = used_network(trial, data_for(trial))
    assert isinstance(network, OneShotNet)
    return network, rows_of(trial)


def epochs(network: OneShotNet, rows: Rows, n: int, of: int | None = None) -> None:
    """So many epochs in batches of seven in which no weight moves."""
    x, y = rows
    for number in range(1, n + 1):
        for batch in torch.arange(len(y)).split(7):
            network.objective(x[batch], y[batch], len(y))
        network.method.after_epoch(network, Epoch(number, of or n, len(y)), _no_validation)


def _no_validation() -> Rows:
    raise AssertionError("it asked for validation labels")


def joint(network: OneShotNet, rows: Rows, times: float) -> np.ndarray:
    """log β + times · mean log-likelihood per depth, in float64, normalised."""
    x, y = rows
    with torch.no_grad():
        log_probs = network.log_probs_per_depth(x).double().numpy()
    means = log_probs[:, np.arange(len(y)), y.numpy()].mean(axis=1)
    unnormalised = network.posterior.log_beta.double().numpy() + times * means
    return np.asarray(np.exp(unnormalised - np.logaddexp.reduce(unnormalised)))


# --- ldn_em ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(config("ldn_em", 4, seed=2), id="fc"),
        pytest.param(config("ldn_em", 4, seed=2, options={"from_start": True}), id="fc, averaged from the start"),
        pytest.param(conv_config("ldn_em", 3), id="conv"),
    ],
)
def test_em_comes_to_rest_at_the_exact_posterior(trial: TrialConfig) -> None:
    network, rows = frozen(trial)
    epochs(network, rows, 400)
    q, exact = network.posterior.probabilities().numpy(), joint(network, rows, times=len(rows[1]))
    assert np.abs(q - exact).max() < 1e-3
    assert 1e-3 < q.max() < 1 - 1e-3, "a posterior on one depth would make the check empty"
    all_rows, train_rows, _ = on_device(data_for(trial), torch.device("cpu"))
    gap, exactly = posterior_gap(network, all_rows, train_rows)
    assert abs(gap) < 1e-3 and int(exactly.argmax()) == q.argmax()


def test_em_steps_by_its_formula_after_a_uniform_warm_up() -> None:
    network, rows = frozen(config("ldn_em", 4, options={"memory": 0.1, "warm_up": 0.5, "from_start": False}))
    with torch.no_grad():
        network.posterior.log_weights().zero_()
    epochs(network, rows, 20, of=40)
    assert network.posterior.probabilities().tolist() == pytest.approx([0.2] * 5)
    x, y = rows
    network.objective(x, y, len(y))
    network.method.after_epoch(network, Epoch(21, 40, len(y)), _no_validation)
    with torch.no_grad():
        target = network.posterior.log_beta + len(y) * network.log_likelihood_per_depth(x, y)
    torch.testing.assert_close(network.posterior.log_weights(), target / (1 + 0.1 * 40))


def test_em_averages_from_the_first_epoch_while_q_is_held_uniform() -> None:
    network, rows = frozen(config("ldn_em", 4, options={"memory": 0.1, "warm_up": 0.5, "from_start": True}))
    held = network.posterior
    assert isinstance(held, HeldWeights)
    held.logits.zero_()
    held.released.zero_()
    epochs(network, rows, 20, of=40)
    assert held.probabilities().tolist() == pytest.approx([0.2] * 5) and not held.released
    x, y = rows
    network.objective(x, y, len(y))
    network.method.after_epoch(network, Epoch(21, 40, len(y)), _no_validation)
    with torch.no_grad():
        exact = held.log_beta + len(y) * network.log_likelihood_per_depth(x, y)
    rho = 1 / (1 + 0.1 * 40)
    torch.testing.assert_close(held.log_weights(), (1 - (1 - rho) ** 21) * exact, atol=1e-3, rtol=1e-3)


def test_one_bad_epoch_as_the_warm_up_ends_no_longer_decides() -> None:
    """The cause of collapses on quickstart, made up: depth 3 is best by far, and the loss jumps in one epoch."""
    learnt = torch.tensor([-0.64, -0.52, -0.33, -0.01, -0.02])
    jumped = torch.tensor([-0.64, -0.89, -1.06, -2.19, -3.12])
    chosen = {}
    for from_start in (False, True):
        network, rows = frozen(config("ldn_em", 4, options={"from_start": from_start}))
        q, x = network.posterior, rows[0]
        assert isinstance(q, WeightsByLikelihood)
        q.logits.zero_()
        for number in range(1, 252):  # of 1,000: the warm-up ends with the 250th
            q.saw(jumped if number == 251 else learnt, len(x))
            network.method.after_epoch(network, Epoch(number, 1000, 200), _no_validation)
        chosen[from_start] = int(q.probabilities().argmax())
    assert chosen == {False: 0, True: 3}


def test_ldn_em_of_before_is_an_option_and_keeps_its_hash() -> None:
    plain, before = load_method("ldn_em")[1], load_method("ldn_em:from_start=false")[1]
    assert hashed(before) == {"memory": 0.025, "warm_up": 0.25} and hashed(plain) != hashed(before)
    read = one_shot_method("ldn_em", {"memory": 0.025, "warm_up": 0.25})
    assert read == before, "a record without the option means what it meant"
    [row] = parse_methods("ldn_em:from_start=false")
    assert row == "ldn_em:from_start=false"


def test_em_keeps_nothing_of_its_warm_up() -> None:
    """Patience is shorter than the warm-up, and at so high a rate the best values may lie in it."""
    for monitor in ("val_objective", "train_objective"):
        trial = config("ldn_em", 2, max_epochs=20, patience=3, lr=1.0, monitor=monitor, options={"warm_up": 0.5})
        last = run_trial(trial, spirals(trial)).progress
        assert last.best_epoch > 10 and last.epoch > 12


def test_the_gradient_of_the_elbo_does_not_reach_a_given_q() -> None:
    network, (x, y) = frozen(config("ldn_em", 3))
    assert "posterior.logits" not in dict(network.named_parameters())
    objective = float(network.objective(x, y, 1234).detach())
    q, log_beta = network.posterior.probabilities(), network.posterior.log_beta.double()
    log_likelihoods = network.log_likelihood_per_depth(x, y).double().detach()
    assert objective == pytest.approx(float(q @ log_likelihoods - (q * (q.log() - log_beta)).sum() / 1234), rel=1e-5)


# --- ldn_normal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.05, 0.7, 3.0, 40.0])
@pytest.mark.parametrize("mean", [-4.0, 0.0, 2.5, 6.99, 9.0])
def test_the_normal_weights_are_integrals_of_the_density(mean: float, spread: float) -> None:
    weights = NormalWeights(torch.zeros(7))
    with torch.no_grad():
        weights.mean.fill_(mean)
        weights.spread.fill_(math.log(math.expm1(spread)))
    shifted = max(-((edge - mean) ** 2) / (2 * spread**2) for edge in (0.0, 7.0, min(max(mean, 0.0), 7.0)))

    def density(x: float) -> float:  # up to a constant, which keeps far tails above zero
        return math.exp(-((x - mean) ** 2) / (2 * spread**2) - shifted)

    peaks = [min(max(mean, float(i)), i + 1.0) for i in range(7)]
    parts = [quad(density, i, i + 1, points=[peaks[i]], limit=500, epsabs=0)[0] for i in range(7)]
    expected = np.array(parts) / sum(parts)
    assert weights.probabilities().numpy() == pytest.approx(expected, abs=2e-4)
    loss = weights.log_q().exp() @ torch.arange(7.0) - weights.kl()
    loss.backward()
    assert weights.mean.grad is not None and weights.spread.grad is not None
    assert weights.mean.grad.isfinite() and weights.spread.grad.isfinite()


def test_two_numbers_say_how_deep_and_they_begin_in_the_middle() -> None:
    network = build_network(config("ldn_normal", 4), (2,), 2)
    assert isinstance(network, OneShotNet)
    assert sorted(name for name, _ in network.posterior.named_parameters()) == ["mean", "spread"]
    q = network.posterior.probabilities().tolist()
    assert q == pytest.approx(q[::-1], rel=1e-4) and min(q) > 0.5 * max(q)


def test_the_normal_posterior_climbs_the_elbo() -> None:
    """Of frozen weights: to the best normal distribution, which no other one on a fine grid beats."""
    network, (x, y) = frozen(config("ldn_normal", 4))
    posterior = network.posterior
    assert isinstance(posterior, NormalWeights)
    optimiser = torch.optim.LBFGS([posterior.mean, posterior.spread], max_iter=200, line_search_fn="strong_wolfe")
    begun = len(y) * float(network.objective(x, y, len(y)).detach())

    def step() -> Tensor:
        optimiser.zero_grad()
        loss = -network.objective(x, y, len(y))
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(step)
    reached = len(y) * float(network.objective(x, y, len(y)).detach())
    log_likelihoods = len(y) * network.log_likelihood_per_depth(x, y).double().detach().numpy()
    log_beta = posterior.log_beta.double().numpy()
    values = []
    for mean in np.arange(-1.0, 6.0, 0.05):
        for spread in np.arange(0.1, 6.0, 0.05):
            q = np.diff(norm.cdf(np.arange(6), mean, spread))
            if q.min() > 0:
                q /= q.sum()
                values.append(float(q @ (log_likelihoods + log_beta - np.log(q))))
    assert begun + 0.2 < max(values) - 0.05 < reached < np.logaddexp.reduce(log_likelihoods + log_beta) + 1e-4


# --- udn ------------------------------------------------------------------------------------------------------------


def poisson_by_hand(rate: float, max_depth: int) -> tuple[list[float], int]:
    """The weights of depths 0…D and the cut, by the definition."""
    terms = [rate**k * math.exp(-rate) / math.factorial(k) for k in range(60)]
    quantile = next(k for k in range(60) if sum(terms[: k + 1]) >= 0.95)
    cut = min(max_depth, quantile + 1)
    kept = [term if k <= cut else 0.0 for k, term in enumerate(terms[: max_depth + 1])]
    return [term / sum(kept) for term in kept], cut


@pytest.mark.parametrize("rate", [0.01, 0.8, 2.0, 5.5, 12.0, 30.0])
@pytest.mark.parametrize("max_depth", [1, 6, 20])
def test_the_poisson_weights_are_the_truncated_sums(rate: float, max_depth: int) -> None:
    weights = TruncatedPoisson(torch.zeros(max_depth + 1), rate)
    expected, cut = poisson_by_hand(rate, max_depth)
    assert weights.known_cut() == cut
    assert weights.probabilities().tolist() == pytest.approx(expected, rel=1e-4, abs=1e-9)
    log_beta = -math.log(max_depth + 1)
    weights.log_beta.fill_(log_beta)
    by_hand = sum(q * (math.log(q) - log_beta) for q in expected if q)
    assert float(weights.kl().detach()) == pytest.approx(by_hand, rel=1e-4, abs=1e-5)


def test_udn_maximises_the_elbo_up_to_its_cut_and_runs_no_block_beyond() -> None:
    network, (x, y) = frozen(config("udn", 9, options={"rate": 1.0}))
    expected, cut = poisson_by_hand(1.0, 9)
    assert cut == 4
    network.trained = Passes()
    objective = network.objective(x, y, 1234)
    assert network.trained.through == {cut: len(y)} and sorted(network.trained.read) == list(range(cut + 1))
    log_likelihoods = network.log_likelihood_per_depth(x, y).double().detach().tolist()
    log_beta = network.posterior.log_beta.double().tolist()
    elbo = sum(
        q * (ll - (math.log(q) - b) / 1234)
        for q, ll, b in zip(expected, log_likelihoods, log_beta, strict=True)
        if q > 0
    )
    assert float(objective.detach()) == pytest.approx(elbo, rel=1e-5)
    objective.backward()
    blocks = [any(p.grad is not None for p in block.parameters()) for block in network.backbone.blocks]
    assert blocks == [True] * cut + [False] * (9 - cut)


def test_the_cut_of_udn_follows_its_rate_after_an_epoch() -> None:
    network, (x, y) = frozen(config("udn", 9, options={"rate": 1.0}))
    posterior = network.posterior
    assert isinstance(posterior, TruncatedPoisson)
    with torch.no_grad():
        posterior.nu.fill_(4.0)  # λ = softplus(4) = 4.02
    network.objective(x, y, len(y))
    assert posterior.known_cut() == 4, "within an epoch it stays"
    network.method.after_epoch(network, Epoch(1, 10, len(y)), _no_validation)
    assert posterior.known_cut() == poisson_by_hand(math.log1p(math.exp(4.0)), 9)[1] == 9


def test_a_depth_that_q_leaves_out_adds_nothing_to_the_gap() -> None:
    trial = config("udn", 6, options={"rate": 0.5})
    trained = run_trial(trial, spirals(trial))
    assert isinstance(trained.network, OneShotNet) and trained.progress.posterior
    assert trained.progress.posterior.q[-1] == 0.0
    rows, train_rows, _ = on_device(spirals(trial), torch.device("cpu"))
    gap, exact = posterior_gap(trained.network, rows, train_rows)
    assert math.isfinite(gap) and gap >= 0 and float(exact.sum()) == pytest.approx(1.0)


# --- exits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trial", [config("exits", 4), conv_config("exits", 3)], ids=["fc", "conv"])
def test_exits_is_the_mean_of_separate_cross_entropies(trial: TrialConfig) -> None:
    """Of networks of every fixed depth that are given its weights; their gradients average to its gradient."""
    network, (x, y) = frozen(trial)
    data, source = data_for(trial), network.state_dict()
    losses, gradients = [], []
    for depth in range(trial.depth + 1):
        fixed = trial.model_copy(update={"kind": FIXED_DEPTH, "depth": depth})
        twin = build_network(fixed, data.sample_shape, data.n_classes).eval()
        for name, tensor in twin.state_dict().items():
            given = source[name]
            tensor.copy_(given if given.shape == tensor.shape else given[depth : depth + 1])
        loss = F.cross_entropy(twin(x), y)  # of log-probabilities it is that of the logits
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad for name, p in twin.named_parameters() if p.grad is not None})
    objective = network.objective(x, y, len(y))
    objective.backward()
    assert -objective.item() == pytest.approx(np.mean(losses), rel=1e-5)
    for name, parameter in network.named_parameters():
        expected = torch.stack([each[name] for each in gradients if name in each]).sum(dim=0)
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, -expected / (trial.depth + 1), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("trial", [config("exits", 3), conv_config("exits", 2), conv_config("exits", 2, "shared")])
def test_the_exit_that_is_best_on_validation_is_handed_over_alone(trial: TrialConfig) -> None:
    data = data_for(trial)
    trained = run_trial(trial, data)
    posterior, network = trained.progress.posterior, trained.network
    assert posterior and trained.progress.val and isinstance(network, OneShotNet)
    assert posterior.rule == "validation" and posterior.d_opt == posterior.d_opt_by_rule["validation"]
    rows, _, val_rows = on_device(data, torch.device("cpu"))
    x, y = rows.take(val_rows)
    with torch.no_grad():
        per_depth = [-float(F.cross_entropy(log_probs, y)) for log_probs in network.log_probs_per_depth(x)]
        chosen = chosen_network(network, posterior.d_opt)
        assert isinstance(chosen, FixedDepthNet) and len(chosen.backbone.blocks) == posterior.d_opt
        assert -float(F.cross_entropy(chosen(x), y)) == pytest.approx(trained.progress.val.log_likelihood, abs=1e-6)
    assert posterior.val_log_likelihoods == pytest.approx(per_depth, abs=1e-6)
    assert per_depth[posterior.d_opt] >= max(per_depth) - 1e-4


def test_of_depths_that_are_as_good_the_smallest_is_kept() -> None:
    network = build_network(config("exits", 3), (2,), 2)
    assert isinstance(network, OneShotNet)
    q = torch.tensor([0.7, 0.1, 0.1, 0.1])
    assert network.choose(q, torch.tensor([-0.5, -0.30005, -0.3, -0.4]), "argmax") == 1
    assert network.choose(q, torch.tensor([-0.5, -0.3002, -0.3, -0.4]), "argmax") == 2


# --- tempered -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trial", [config("tempered", 4), conv_config("tempered", 3)], ids=["fc", "conv"])
def test_tempered_lies_between_the_prior_and_the_exact_posterior(trial: TrialConfig) -> None:
    n = len(rows_of(trial)[1])
    for temperature, tolerance in ((0.0, 1e-6), (5.0, 1e-5), (float(n), 1e-4)):
        network, rows = frozen(trial.model_copy(update={"options": {"temperature": temperature}}))
        epochs(network, rows, 1)
        expected = joint(network, rows, times=temperature)
        assert np.abs(network.posterior.probabilities().numpy() - expected).max() < tolerance
    prior = network.posterior.log_beta.double().exp().numpy()
    assert np.abs(expected - prior).max() > 1e-2, "the posterior must differ from the prior to be told apart"


def test_tempered_begins_at_the_prior_and_maximises_what_it_says() -> None:
    trial = config("tempered", 3)
    fresh = build_network(trial, (2,), 2)
    assert isinstance(fresh, OneShotNet)
    torch.testing.assert_close(fresh.posterior.log_q(), fresh.posterior.log_beta)
    network, (x, y) = frozen(trial)
    log_likelihoods = network.log_likelihood_per_depth(x, y).double().detach()
    expected = float(network.posterior.probabilities() @ log_likelihoods)
    assert float(network.objective(x, y, 7).detach()) == pytest.approx(expected, rel=1e-5)


# --- elastic --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("trial", [config("elastic", 4), conv_config("elastic", 3)], ids=["fc", "conv"])
def test_the_expected_gradient_of_elastic_is_that_of_the_enumeration(trial: TrialConfig) -> None:
    network, (x, y) = frozen(trial)
    depth, drawn = trial.depth, dict[int, dict[str, Tensor]]()
    counts = dict.fromkeys(range(depth), 0)
    log_likelihoods = network.log_likelihood_per_depth(x, y).detach()
    for _ in range(400):
        network.zero_grad()
        objective = network.objective(x, y, len(y))
        r = int(((log_likelihoods[:-1] + log_likelihoods[-1]) / 2 - objective.detach()).abs().argmin())
        counts[r] += 1
        if r not in drawn:
            objective.backward()
            drawn[r] = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    assert set(drawn) == set(range(depth))
    assert all(abs(count - 400 / depth) < 5 * math.sqrt(400 / depth) for count in counts.values())
    network.zero_grad()
    exact = network.log_likelihood_per_depth(x, y)
    (exact[:-1].mean() / 2 + exact[-1] / 2).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        expected = sum(drawn[r][name] for r in range(depth)) / depth
        torch.testing.assert_close(expected, parameter.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("head_bn", ["per_depth", "shared"])
def test_some_depths_are_those_of_the_whole(head_bn: str) -> None:
    """Predictions, and the running statistics of the output block that a training step leaves."""
    trial = conv_config("elastic", 3, head_bn)
    network, (x, y) = frozen(trial)
    whole = network.log_likelihood_per_depth(x, y)
    torch.testing.assert_close(network.log_likelihood_at(x, y, (1, 3)), whole[[1, 3]])
    torch.testing.assert_close(network.log_likelihood_at(x, y, (0,)), whole[:1])
    if head_bn == "shared":
        return
    other, _ = frozen(trial)
    network.train().log_likelihood_at(x, y, (1, 3))
    other.train().log_likelihood_per_depth(x, y)
    heads: list[Any] = [net.backbone.head for net in (network, other, frozen(trial)[0])]
    mine, theirs, before = (head.bn.running_mean for head in heads)
    torch.testing.assert_close(mine[[1, 3]], theirs[[1, 3]])
    assert torch.equal(mine[[0, 2]], before[[0, 2]]) and not torch.allclose(theirs[[0, 2]], before[[0, 2]])


# --- elastic_kd -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trial", [config("elastic_kd", 3), conv_config("elastic_kd", 2)], ids=["fc", "conv"])
def test_distillation_has_the_gradient_of_its_formula(trial: TrialConfig) -> None:
    """½ log p_D(y) + ½ Σ_c stop[p_D(c)] log p_r(c), written out and differentiated by autograd, for each r drawn."""
    network, (x, y) = frozen(trial)
    seen = set()
    for _ in range(40):
        log_probs = network.log_probs_per_depth(x)
        teacher = log_probs[-1].detach().softmax(dim=1)
        supervised = -F.cross_entropy(log_probs[-1], y)
        formulas = [(supervised + (teacher * log_probs[r]).sum(dim=1).mean()) / 2 for r in range(trial.depth)]
        objective = network.objective(x, y, len(y))
        r = min(range(trial.depth), key=lambda r: abs(float((formulas[r] - objective).detach())))
        if r in seen:
            continue
        seen.add(r)
        assert float(objective.detach()) == pytest.approx(float(formulas[r].detach()), rel=1e-5)
        weights = list(network.backbone.parameters())
        got = torch.autograd.grad(objective, weights, allow_unused=True)
        expected = torch.autograd.grad(formulas[r], weights, allow_unused=True)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine is not None and theirs is not None
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-3)
    assert seen == set(range(trial.depth))


def test_the_deepest_learns_nothing_from_its_pupil() -> None:
    """Its own blocks beyond the drawn depth get half the gradient of the labels alone."""
    network, (x, y) = frozen(config("elastic_kd", 3))
    deepest = network.backbone.blocks[-1]
    network.objective(x, y, len(y)).backward()
    from_both = [p.grad.clone() for p in deepest.parameters() if p.grad is not None]
    network.zero_grad()
    network.log_likelihood_at(x, y, (3,))[0].backward()
    for mine, labels_alone in zip(from_both, deepest.parameters(), strict=True):
        assert labels_alone.grad is not None
        torch.testing.assert_close(2 * mine, labels_alone.grad, atol=1e-6, rtol=1e-4)


# --- darts_depth ----------------------------------------------------------------------------------------------------


def test_no_validation_gradient_reaches_the_weights_of_darts() -> None:
    trial = config("darts_depth", 3)
    network = build_network(trial, (2,), 2).train()
    assert isinstance(network, OneShotNet) and isinstance(network.posterior, Mixture)
    x, y = rows_of(trial)
    network.objective(x, y, len(y)).backward()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    gradients = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    for _ in range(3):
        network.method.after_step(network, lambda: (x[:20], 1 - y[:20]))
    after = network.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        f"posterior.{name}" for name in ("logits", "mean", "square", "steps")
    }
    for name, parameter in network.named_parameters():
        assert name in gradients and parameter.grad is not None and torch.equal(gradients[name], parameter.grad)
    assert network.training


def test_the_softmax_of_darts_climbs_as_adam_would() -> None:
    network, (x, y) = frozen(config("darts_depth", 3, options={"rate": 0.05}))
    assert isinstance(network.posterior, Mixture)
    logits = nn.Parameter(network.posterior.logits.clone())
    adam = torch.optim.Adam([logits], lr=0.05, betas=(0.5, 0.999), maximize=True)
    for batch in torch.arange(len(y)).split(10):
        log_likelihoods = network.eval().log_likelihood_per_depth(x[batch], y[batch]).detach()
        adam.zero_grad()
        (torch.softmax(logits, dim=0) @ log_likelihoods).backward()
        adam.step()
        network.method.after_step(network, lambda batch=batch: (x[batch], y[batch]))  # type: ignore[misc]
    torch.testing.assert_close(network.posterior.logits, logits.detach(), atol=1e-5, rtol=1e-4)
    assert network.choose(torch.tensor([0.3, 0.295, 0.405]), None, "threshold") == 2


# --- autogrow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [config, conv_config], ids=["fc", "conv"])
def test_autogrow_adds_blocks_that_begin_near_zero_and_runs_no_other(make: Any) -> None:
    options = {"every": 0.25, "threshold": 0.0, "patience": 99, "scale": 1e-3}
    trial = make("autogrow", 3, max_epochs=8, options=options, monitor="none")
    data = data_for(trial)
    begun = build_network(trial, data.sample_shape, data.n_classes).state_dict()
    grown: list[int] = []
    trained = run_trial(trial, data, lambda progress, save: grown.append(progress.point.d_opt))  # type: ignore[union-attr, arg-type]
    assert grown[:8] == [0, 1, 1, 2, 2, 3, 3, 3]  # a report comes after the epoch's growth
    depths = [0, 0, 1, 1, 2, 2, 3, 3]
    cost = trained.progress.cost
    assert (cost.samples, cost.head_passes) == (8 * data.n_train, 8 * data.n_train)
    assert cost.block_passes == sum(depths) * data.n_train
    short = run_trial(trial.model_copy(update={"options": {**options, "every": 0.5}}), data).network.state_dict()
    unused = [name for name in short if name.startswith("backbone.blocks.2.")]
    assert unused and all(torch.equal(short[name], begun[name]) for name in unused)


def test_a_new_block_hardly_changes_the_prediction() -> None:
    trial = config("autogrow", 3, options={"every": 0.01, "scale": 1e-3})
    network, (x, y) = build_network(trial, (2,), 2).train(), rows_of(trial)
    assert isinstance(network, OneShotNet)
    before = network.log_likelihood_at(x, y, (0, 1))
    assert abs(float((before[1] - before[0]).detach())) > 1e-2, "else there would be nothing to see"
    network.method.after_epoch(network, Epoch(1, 10, len(y)), lambda: (x, y))
    assert network.posterior.probabilities().tolist() == [0.0, 1.0, 0.0, 0.0]
    after = network.log_likelihood_at(x, y, (0, 1))
    assert abs(float((after[1] - after[0]).detach())) < 1e-2


def test_growth_ends_where_validation_gains_nothing() -> None:
    trial = config("autogrow", 3, max_epochs=12, options={"every": 0.01, "threshold": 9.0, "patience": 2})
    posterior = run_trial(trial, spirals(trial)).progress.posterior
    assert posterior and posterior.d_opt == 2  # the first value always gains, then two blocks in vain


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ldn", "exits"])
def test_what_is_handed_over_and_what_is_read_on_the_test_set(kind: str) -> None:
    trial = config(kind, 3)
    trained = run_trial(trial, spirals(trial))
    assert isinstance(trained.network, OneShotNet) and trained.progress.posterior
    final = evaluate_on_test(trained.network, trained.progress.posterior.d_opt, trial, spirals(trial))
    assert set(final.by_rule) == {"argmax", "threshold", "expected", "validation"}
    by_validation = max(each.measures.log_likelihood for each in final.per_depth_val)
    assert final.d_opt_by_validation is not None
    assert final.per_depth_val[final.d_opt_by_validation].measures.log_likelihood >= by_validation - 1e-4
    of_that_depth = final.per_depth_test[final.d_opt_by_validation].measures
    assert final.by_rule["validation"].log_likelihood == pytest.approx(of_that_depth.log_likelihood, abs=1e-6)
    if kind == "ldn":
        assert final.posterior_gap_nats is not None and final.d_opt_exact is not None
        assert isinstance(chosen_network(trained.network, 1), DepthMixture)
    else:
        assert final.posterior_gap_nats is None and final.d_opt_exact is None
        assert final.chosen == final.by_rule["validation"]
