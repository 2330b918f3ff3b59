"""What every network must keep to, checked on a few blocks: `harness check my_net.py`."""

import functools
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from harness.errors import UserError
from harness.methods.base import OneShotMethod
from harness.models.build import build_backbone
from harness.models.passes import Passes
from harness.networks import network_of
from harness.networks.base import Backbone, Network
from harness.replaying.method_rules import MethodRule, NotKept, NotTried, method_rules, require, shape_for
from harness.schema.networks import NetworkSettings
from harness.schema.settings import SearchSpace
from harness.seeds import torch_seeded
from harness.training.cost import flop
from harness.training.devices import threads
from harness.training.networks import check_predictions

NEEDS_SHRINK = "needs shrink(block, scale)"
ROWS, CLASSES, MORE = 6, 4, 2  # MORE blocks than the first depth at which every part is there
CLOSE = 1e-4


def network_rules(
    settings: NetworkSettings, space: SearchSpace, one_shots: dict[str, OneShotMethod]
) -> list[MethodRule]:
    """On the network itself, and on how it trains as a one-shot network by each of the methods given."""

    def rule(says: str, test: Callable[["_Trials"], str], builds_on: MethodRule | None = None) -> MethodRule:
        return MethodRule(says, lambda: _on_one_thread(test, settings), builds_on.name if builds_on else "")

    predicts = rule("it predicts every class at every depth, in finite numbers", _predicts)
    alone = rule("a depth in the stack of depths is that depth alone", _depths_are_alone, predicts)
    rules = [
        predicts,
        rule("a block does not depend on how many there are", _prefix, predicts),
        rule("its head treats every depth by itself", _head_keeps_depths_apart, predicts),
        alone,
        rule("the gradient reaches every parameter", _gradient, predicts),
        rule("a new block that is shrunk to 0 passes on what it is given", _shrinks, predicts),
        rule("its operations are counted as they are", _operations, predicts),
    ]
    for place, (name, method) in enumerate(one_shots.items()):
        says = f"{name} trains it, cuts it at every depth, repeats, and goes on from a checkpoint to the bit"
        kept = method_rules(name, method, space, [settings])
        of_method = functools.partial(_kept_together, kept, settings, named=place == 0)
        rules.append(MethodRule(says, of_method, alone.name))
    return rules


def _kept_together(rules: Sequence[MethodRule], settings: NetworkSettings, named: bool) -> str:
    for rule in rules:
        try:
            rule.test()
        except (NotKept, UserError) as error:
            raise NotKept(f"{rule.name}: {error}") from None
        except NotImplementedError:
            if _defines_shrink(network_of(settings)):
                raise
            raise NotTried(NEEDS_SHRINK) from None
    count = f"{len(rules)} rules of a one-shot method"
    return f"{count}: {'; '.join(rule.name for rule in rules)}" if named else count


def _defines_shrink(network: Network) -> bool:
    """Only a method that adds blocks in training calls it, so a network may do without."""
    return type(network).shrink is not Network.shrink


def _on_one_thread(test: Callable[["_Trials"], str], settings: NetworkSettings) -> str:
    with threads(1), torch_seeded(0, "check"):
        return test(_Trials(settings))


class _Trials:
    """A small network, and rows for it."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.settings, self.network = settings, network_of(settings)
        self.depth = self.network.least_depth() + MORE

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        return shape_for(self.settings)

    def rows(self, n: int = ROWS) -> Tensor:
        return torch.randn(n, *self.shape)

    def backbone(self, depth: int | None = None, n_heads: int | None = None) -> Backbone:
        depth = self.depth if depth is None else depth
        with torch_seeded(0, "init"):
            return build_backbone(self.settings, self.shape, CLASSES, depth, depth + 1 if n_heads is None else n_heads)

    def used(self) -> Backbone:
        """One whose statistics and parameters are not the first ones, in evaluation mode."""
        backbone = self.backbone().train()
        with torch.no_grad():
            for _ in range(3):
                backbone(1 + 2 * self.rows(16))
            for parameter in backbone.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        return backbone.eval()


def _predicts(trials: _Trials) -> str:
    check_predictions(trials.settings, trials.shape, CLASSES, trials.depth)
    return f"depths 0 … {trials.depth} on {'×'.join(map(str, trials.shape))}"


def _prefix(trials: _Trials) -> str:
    few, more = trials.backbone(trials.depth - 1), trials.backbone()
    for number, (block, other) in enumerate(zip(few.blocks, more.blocks, strict=False), start=1):
        shapes = [{name: tuple(each.shape) for name, each in part.state_dict().items()} for part in (block, other)]
        require(
            str(block) == str(other) and shapes[0] == shapes[1],
            f"block {number} of {len(few.blocks)} is not block {number} of {len(more.blocks)}; a block may depend on "
            "its own number only",
        )
    return f"{len(few.blocks)} and {len(more.blocks)} blocks"


def _depths_are_alone(trials: _Trials) -> str:
    """In evaluation mode, through the cut that a choice of depth makes, and through a network built for that depth."""
    backbone, x = trials.used(), trials.rows()
    with torch.inference_mode():
        stack = backbone(x)
        for depth in range(trials.depth + 1):
            cut = backbone.at(depth).eval()
            built = trials.backbone(depth, 1).eval()
            built.load_state_dict(cut.state_dict())
            for what, alone in (("cut", cut(x)[0]), ("built", built(x)[0])):
                apart = float((alone - stack[depth]).abs().max())
                require(
                    apart < CLOSE, f"at depth {depth} a network {what} there predicts something else, by {apart:.2g}"
                )
    return f"{trials.depth + 1} depths"


def _head_keeps_depths_apart(trials: _Trials) -> str:
    """In training: what one depth predicts must not change with the features of the others. Also with as many rows as
    there are features, where a BatchNorm1d takes the one for the other without a word."""
    backbone = trials.backbone()
    width = backbone.readouts[0](backbone.stem(trials.rows(2))).shape[1]
    remedy = "a BatchNorm1d in the head mixes them: use StackedBatchNorm, or LayerNorm"
    for n in {ROWS, max(2, width)}:
        stack = torch.randn(trials.depth + 1, n, width)
        others = torch.cat([stack[:1], 3 * torch.randn(trials.depth, n, width)])
        try:
            with torch.no_grad():
                first, second = (_seeded(backbone.head.train(), each)[0] for each in (stack, others))
        except (RuntimeError, ValueError) as error:
            raise UserError(f"its head fails on {trials.depth + 1} depths of {n} rows ({error}); {remedy}") from error
        apart = float((first - second).abs().max())
        require(
            apart < CLOSE, f"with {n} rows a depth's prediction changes with the features of other depths; {remedy}"
        )
    return f"{trials.depth + 1} depths"


def _seeded(head: torch.nn.Module, stack: Tensor) -> Tensor:
    with torch_seeded(0, "head"):
        logits: Tensor = head(stack)
        return logits


def _gradient(trials: _Trials) -> str:
    backbone = trials.backbone().train()
    labels = torch.arange(ROWS) % CLASSES
    (-backbone(trials.rows())[:, torch.arange(ROWS), labels].mean()).backward()
    without = [name for name, each in backbone.named_parameters() if each.requires_grad and each.grad is None]
    require(not without, f"no gradient reaches {without[0] if without else ''}")
    return f"{len(list(backbone.parameters()))} parameters"


def _shrinks(trials: _Trials) -> str:
    if not _defines_shrink(trials.network):
        raise NotTried(NEEDS_SHRINK)
    backbone, same = trials.backbone().eval(), 0
    with torch.no_grad():
        activation = backbone.stem(trials.rows())
        for number, block in enumerate(backbone.blocks, start=1):
            trials.network.shrink(block, 0.0)
            passed = block(activation)
            if passed.shape == activation.shape:
                same += 1
                apart = float((passed - activation).abs().max() / activation.abs().max())
                require(apart < CLOSE, f"block {number} shrunk to 0 changes what it is given, by {apart:.2g} of it")
            activation = passed
    return f"{same} of {len(backbone.blocks)} blocks keep the shape"


def _operations(trials: _Trials) -> str:
    counts = []
    for depth, train in itertools.product((trials.depth - 1, trials.depth), (False, True)):
        backbone = trials.backbone(depth).train(train)
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
            log_probs = backbone(trials.rows())
            if train:
                log_probs.sum().backward()
        passes = Passes({depth: ROWS}, dict.fromkeys(range(depth + 1), ROWS))
        ours = flop(trials.settings, trials.shape, CLASSES, passes, train)
        counts.append(counter.get_total_flops())
        require(
            ours == counts[-1], f"at depth {depth} its parts have {ours:,} operations, the whole has {counts[-1]:,}"
        )
    return f"{counts[-1] // ROWS:,} a sample"
