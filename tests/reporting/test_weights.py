"""The figure of weights over depths: one for each one-shot method, with what every rule would have chosen."""

from harness.comparing import compare
from harness.comparing.finished import Finished
from harness.reporting.curves import weights_over_depths
from harness.schema.records import Unit
from tests.synthetic import facts_of, make_units

DEPTH = 4  # that validation would choose, below


def as_exits(unit: Unit) -> Unit:
    """The same records as if a method without a posterior had left them."""
    assert unit.result
    plan = unit.plan.model_copy(update={"method": "exits", "facts": facts_of("exits")})
    final = unit.result.final.model_copy(
        update={"posterior_gap_nats": None, "d_opt_exact": None, "d_opt_by_validation": DEPTH}
    )
    trials = tuple(trial.model_copy(update={"kind": "exits"}) for trial in unit.trials)
    return Unit(plan=plan, trials=trials, result=unit.result.model_copy(update={"method": "exits", "final": final}))


def with_a_second_one_shot() -> list[Unit]:
    units = make_units(("ldn", "grid"), range(2))
    return [*(as_exits(unit) for unit in units if unit.plan.method == "ldn"), *units]


def test_every_one_shot_has_its_figure() -> None:
    units = with_a_second_one_shot()
    by_method: dict[str, list[Finished]] = {}
    for unit in units:
        assert unit.result
        by_method.setdefault(unit.plan.method, []).append(Finished(unit.plan, unit.trials, unit.result))
    drawings = {drawing.name: drawing for drawing in weights_over_depths(by_method, compare(units))}
    assert set(drawings) == {"weights_exits", "weights_ldn"}
    exits, ldn = drawings["weights_exits"], drawings["weights_ldn"]
    assert "posterior" not in exits.caption and f"validation {DEPTH}." in exits.caption
    assert "the posterior gap is 1.30 nats" in ldn.caption and "exact posterior" in ldn.caption
    for drawing in (exits, ldn):
        assert "Line: what a network of exactly that depth reached" in drawing.caption
        assert all(rule in drawing.caption for rule in ("argmax", "threshold", "expected", "Mean d_opt"))


def test_a_posterior_is_the_reference_unless_another_is_asked_for() -> None:
    units = with_a_second_one_shot()
    assert compare(units).reference == "ldn"
    assert [compare(units, method).reference for method in ("exits", "grid")] == ["exits", "grid"]
    without = [unit for unit in units if unit.plan.method != "ldn"]
    assert compare(without).reference == "exits"
