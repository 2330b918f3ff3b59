"""What somebody else needs to get the same numbers: commands, versions, seeds, hashes, the space as it ran."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.comparing.values import Comparison
from harness.schema.records import Unit, UnitPlan
from harness.spaces import known_spaces
from harness.text.shown import counted, html_text


def reproduce(units: Sequence[Unit], comparison: Comparison) -> Iterable[str]:
    space = units[0].plan.space
    commands = "\n".join(commands_of(units, None if comparison.search.against else comparison.reference))
    yield f"<pre><code>{html_text(commands)}</code></pre>"
    yield (
        f"<p>The space as it ran, overrides included: save it as <code>{html_text(space.name)}.yaml</code> "
        "(JSON is YAML) and give the file instead of the name where yours differs.</p>"
        f"<details><summary>{html_text(space.name)}.yaml</summary>"
        f"<pre><code>{html_text(space.model_dump_json(indent=2))}</code></pre></details>"
    )
    yield "<h3>Made with</h3><dl>"
    for name, values in made_with(units).items():
        yield f"<dt>{html_text(name)}</dt><dd>{html_text(', '.join(values))}</dd>"
    yield "</dl><details><summary>Hashes of every unit</summary><div class=scroll tabindex=0><table><thead><tr>"
    yield "".join(f'<th scope="col">{name}</th>' for name in ("unit", "plan", "train and validation", "test", "status"))
    yield "</tr></thead><tbody>"
    for unit in sorted(units, key=lambda unit: (unit.plan.method, unit.plan.seed)):
        cells = (
            unit.plan.hash,
            ", ".join(sorted({trial.split_hash for trial in unit.trials})) or "–",
            (unit.result.final.test_hash if unit.result else None) or "–",
            unit.result.status if unit.result else "unfinished",
        )
        name = html_text(f"{unit.plan.method} seed {unit.plan.seed}")
        yield f'<tr><th scope="row">{name}</th>' + "".join(f"<td>{html_text(cell)}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div></details>"


def commands_of(units: Sequence[Unit], reference: str | None) -> list[str]:
    """The command lines, quoted for a shell. What does not come with the harness is a file of the user's."""
    named = "" if reference is None else f" --reference {shlex.quote(reference)}"
    rows = {unit.plan.method: unit.plan for unit in units}
    methods = ",".join(method_argument(_file_of(plan), plan.options) for plan in rows.values())
    seeds = ",".join(map(str, sorted({unit.plan.seed for unit in units})))
    name = units[0].plan.space.name
    space, given = shlex.quote(name), shlex.quote(name if name in known_spaces() else f"{name}.yaml")
    refit = " --refit" if all(unit.plan.refit for unit in units) else ""
    devices = {unit.plan.concurrency for unit in units if unit.plan.replayed}
    replay = f" --replay --workers {max(each or 1 for each in devices)}" if devices else ""
    return [
        f"harness run {given} --methods {shlex.quote(methods)} --seeds {seeds}{refit}{replay}",
        f"harness compare {space}{named}",
        f"harness report {space}{named}",
    ]


def _file_of(plan: UnitPlan) -> str:
    """A method's name, or the file where it is the user's own."""
    file = f"{plan.method_file}.py"
    return file if f"method {file}" in plan.code else plan.method_file


def method_argument(method: str, options: Mapping[str, Any]) -> str:
    """A method as the command line takes it: `asha:grace_epochs=20`. An option that is None was not given."""
    return ":".join([method, *(f"{name}={value}" for name, value in options.items() if value is not None)])


def made_with(units: Sequence[Unit]) -> dict[str, list[str]]:
    """Versions, machines and seeds; more than one value where the units differ."""
    environments = [trial.environment for unit in units for trial in unit.trials]
    readers = {
        "harness": [f"{item.harness} (code {item.code})" for item in environments],
        "Python": [item.python for item in environments],
        "torch": [item.torch for item in environments],
        "Ray": [item.ray or "none" for item in environments],
        "machine": [item.machine for item in environments],
        "device": [f"{item.device}, {counted(item.threads, 'thread')}" for item in environments],
        "CPUs, GPUs per trial": [f"{unit.plan.cpus_per_trial:g}, {unit.plan.gpus_per_trial:g}" for unit in units],
        "seeds": [str(unit.plan.seed) for unit in sorted(units, key=lambda unit: unit.plan.seed)],
    }
    labels: dict[str, list[str]] = {}
    for unit in units:
        if unit.result:
            used = f"{unit.result.labels_fit} for fitting, {unit.result.labels_chosen_with} for stopping and choosing"
            labels.setdefault(used, []).append(unit.plan.method)
    readers["labels"] = [f"{used} ({', '.join(dict.fromkeys(methods))})" for used, methods in labels.items()]
    return {name: list(dict.fromkeys(values)) for name, values in readers.items()}
