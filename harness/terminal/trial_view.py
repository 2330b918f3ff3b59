"""How one trial looks in the terminal: q(d) as bars, depths, measures, and where the time went."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.measures import QUALITIES, shown_phases
from harness.schema.records import Cost, Measures, Posterior
from harness.statistics import ENOUGH_RESOLUTION
from harness.text.shown import counted
from harness.training.one_trial import TrialReport

BAR_WIDTH = 40


def view(report: TrialReport) -> RenderableType:
    record = report.record
    name = f"{record.kind}, depths 0…{record.depth}" if record.learns_depth else f"fixed depth {record.depth}"
    parts: list[RenderableType] = [
        Text(
            f"{name}, seed {record.seed}: {counted(record.cost.epochs, 'epoch')}, stopped by {record.stop_reason}",
            style="bold",
        )
    ]
    if record.status == "failed":
        parts.append(Text(f"FAILED: {record.error}", style="bold red"))
    if record.posterior:
        parts += [posterior_bars(record.posterior), _depths(report)]
    parts += [_measures(report), *_resolution(report), phase_table(record.cost)]
    return Group(*parts)


def posterior_bars(posterior: Posterior) -> Table:
    table = Table.grid(padding=(0, 1))
    largest = max(posterior.q)
    for depth, q in enumerate(posterior.q):
        chosen = depth == posterior.d_opt
        bar = Text("█" * round(BAR_WIDTH * q / largest), style="bold red" if chosen else "blue")
        table.add_row(f"{depth:>4}", f"{q:.3f}", bar, "← d_opt" if chosen else "")
    return table


def _depths(report: TrialReport) -> Text:
    posterior = report.record.posterior
    assert posterior is not None
    rules = ", ".join(f"{rule} {depth}" for rule, depth in posterior.d_opt_by_rule.items())
    text = f"d_opt {posterior.d_opt} by the rule {posterior.rule} ({rules})"
    if report.d_opt_exact is not None:
        text += f"; exact posterior of these weights: {report.d_opt_exact}, gap {report.posterior_gap_nats:.2f} nats"
    if report.record.depth_changed_late:
        of_q = "q not converged: " if report.posterior_gap_nats is not None else ""
        text += f"; {of_q}the depth changed in the last quarter of training"
    return Text(text)


def _resolution(report: TrialReport) -> list[RenderableType]:
    """What one network says of it: depths that differ by less than a few times the jitter look the same."""
    if report.val_jitter is None:
        return []
    smallest = ENOUGH_RESOLUTION * report.val_jitter
    return [
        Text(
            f"validation log-likelihood jitters by {report.val_jitter:.2g} nats between reports in the last quarter of "
            f"training: depths that differ by less than {smallest:.2g} cannot be told apart"
        )
    ]


def _measures(report: TrialReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", *(quality.title for quality in QUALITIES)):
        table.add_column(column, justify="left" if not column else "right")
    averaged, test = report.posterior_gap_nats is not None, report.test  # else its network predicts at one depth
    rows: list[tuple[str, Measures | None]] = [
        ("validation, all depths" if averaged else "validation", report.record.val),
        (f"validation, pruned to {report.d_opt}", report.val_pruned if averaged else None),
    ]
    if test:
        rows += [
            ("test, all depths", test.full if averaged else None),
            (f"test, pruned to {report.d_opt}" if report.record.learns_depth else "test", test.chosen),
        ]
        if test.floor:
            rows += [("test, linear model", test.floor.linear), ("test, class frequencies", test.floor.guess)]
    for name, measures in rows:
        if measures:
            values = [quality.of(measures) for quality in QUALITIES]
            table.add_row(name, *("–" if value is None else f"{value:.4f}" for value in values))
    return table


def phase_table(cost: Cost) -> Table:
    table = Table(box=None, pad_edge=False)
    shown = shown_phases([cost.phases])
    for column in ("seconds held", *shown, "TFLOP"):
        table.add_column(column, justify="right")
    phases = [f"{cost.phases.get(phase, 0.0):.2f}" for phase in shown]
    table.add_row(f"{cost.held_seconds:.2f}", *phases, f"{cost.tflop:.4f}")
    return table
