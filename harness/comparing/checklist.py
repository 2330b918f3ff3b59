"""The checklist of Lindauer & Hutter, "Best Practices for Scientific Research on Neural Architecture Search" (2020),
answered from the records. An answer is "yes" only where the evidence is in them."""

from collections.abc import Mapping, Sequence
from typing import Literal

from harness.comparing.finished import ByMethod, Finished, exhaustive_method
from harness.comparing.values import ChecklistItem, Contamination, DepthCheck, Difference
from harness.text.shown import counted

Answer = Literal["yes", "partly", "no"]

_PROTOCOL = ("settings", "same network", "training and validation split", "test set", "head cost rule")


def checklist(
    by_method: ByMethod,
    fairness: Sequence[Difference],
    contamination: Contamination,
    depth_checks: Sequence[DepthCheck],
    refitted: bool,
) -> tuple[ChecklistItem, ...]:
    units = [unit for group in by_method.values() for unit in group]
    return (
        *_on_code(by_method, units),
        *_on_comparing(by_method, units, fairness, contamination, depth_checks),
        *_on_reporting(units, refitted),
    )


def _item(question: str, answer: Answer, evidence: str) -> ChecklistItem:
    return ChecklistItem(question=question, answer=answer, evidence=evidence)


def _on_code(by_method: ByMethod, units: Sequence[Finished]) -> list[ChecklistItem]:
    space = units[0].plan.space
    codes = sorted({trial.environment.code for unit in units for trial in unit.trials})
    version = ", ".join(codes)
    known: Answer = "partly" if any(code.endswith("+dirty") for code in codes) else "yes"
    options = {method: group[0].plan.options for method, group in by_method.items()}
    given = "; ".join(f"{method} {values}" for method, values in options.items() if values) or "all at their defaults"
    seeds = sorted({unit.seed for unit in units})
    training = space.training
    code = {file: digest for unit in units for file, digest in unit.plan.code.items()}
    own = ", ".join(f"{file} (hash of its code {digest})" for file, digest in sorted(code.items()))
    return [
        _item(
            "Is the code of the training pipeline released?",
            known,
            f"harness/training/, code version {version}",
        ),
        _item(
            "Is the code of the search space released?", "yes", f"{space.name}: the whole space is in every plan.json"
        ),
        _item(
            "Are the hyperparameters of the final evaluation and the seeds released?",
            "yes",
            f"{training.recipe}, at most {training.max_epochs} epochs, patience {training.patience} on "
            f"{training.monitor}; seeds {_list(seeds)}",
        ),
        _item(
            "Is the code of the search methods released?",
            "partly" if own else known,
            f"{', '.join(by_method)}: one file each, {version}"
            + (f"; but {own}: the user's own, in no released version" if own else ""),
        ),
        _item("Are the search methods' hyperparameters and seeds released?", "yes", f"options: {given}; in plan.json"),
    ]


def _on_comparing(
    by_method: ByMethod,
    units: Sequence[Finished],
    fairness: Sequence[Difference],
    contamination: Contamination,
    depth_checks: Sequence[DepthCheck],
) -> list[ChecklistItem]:
    exhaustive = exhaustive_method(by_method)
    protocol = [item.rule for item in fairness if item.rule.startswith(_PROTOCOL)]
    confounders = [item.rule for item in fairness if not item.rule.startswith(_PROTOCOL)]
    environment = units[0].trials[0].environment if units[0].trials else None
    same = f"{environment.machine}, {environment.device}, torch {environment.torch}" if environment else "no trials"
    per_seed = {seed: sum(unit.seed == seed for unit in units) for seed in sorted({unit.seed for unit in units})}
    complete = sum(count == len(by_method) for count in per_seed.values())
    runs: Answer = "yes" if complete >= 3 else "partly" if complete == 2 else "no"
    confounded: Answer = "no" if confounders else "partly" if contamination.found else "yes"
    return [
        _item(
            "Same data, split, search space, training code and hyperparameters for all methods?",
            "no" if protocol else "yes",
            f"differs in: {', '.join(protocol)}"
            if protocol
            else f"{_files_agree(units)}split and config hashes agree for every seed",
        ),
        _item(
            "Are confounding factors (hardware, versions, run time) controlled?",
            confounded,
            f"differs in: {', '.join(confounders)}"
            if confounders
            else f"{same} for every trial"
            + (f"; but {'; '.join(contamination.signs)}" if contamination.found else "; seconds agree with TFLOP"),
        ),
        _item(
            "Were ablations run?",
            "partly" if depth_checks else "no",
            f"the chosen depths against every stand-alone depth, trained by {exhaustive}; others are separate studies"
            if depth_checks
            else "a comparison run holds none; they are separate studies",
        ),
        _item(
            "Same evaluation protocol for all methods?",
            "no" if protocol else "yes",
            f"one final evaluation per unit after the choice, {units[0].result.final.n_test} test samples, 15 ECE bins",
        ),
        _item("Is performance over time compared?", "yes", "anytime curves and cost at equal quality"),
        _item(
            "Is random search among the methods?",
            "yes" if any(group[0].facts.at_random for group in by_method.values()) else "no",
            ", ".join(by_method),
        ),
        _item(
            "Several runs, with their seeds reported?",
            runs,
            f"{complete} of {counted(len(per_seed), 'seed')} complete: {_list(per_seed)}, paired, with t intervals",
        ),
        _item(
            "Are tabular or surrogate benchmarks used for depth of evaluation?",
            "partly" if exhaustive else "no",
            f"{exhaustive} trains every depth, which makes a table of this space"
            if exhaustive
            else "no method trained every depth, so there is no table of all depths",
        ),
    ]


def _files_agree(units: Sequence[Finished]) -> str:
    """Those of different bytes are not compared; plans of earlier versions do not say."""
    hashes = {unit.plan.data_hash for unit in units}
    return "" if None in hashes else f"the data files' bytes (hash {hashes.pop()}), "


def _on_reporting(units: Sequence[Finished], refitted: bool) -> list[ChecklistItem]:
    return [
        _item(
            "Is it reported how hyperparameters were tuned, and at what cost?",
            "partly",
            "the space gives the same training settings to all methods and nothing is tuned per method; how the "
            "space's author found them is not in the records",
        ),
        _item(
            "Is the time of the whole method reported, not of the search phase only?",
            "yes" if refitted else "partly",
            "search, failed and lost work, driver, final evaluation"
            + (", refit" if refitted else "; no refit was run"),
        ),
        _item(
            "Are all details of the set-up reported?",
            "yes",
            f"settings, options, versions, machine, split hashes, {units[0].result.labels_fit} labels for fitting and "
            f"{units[0].result.labels_chosen_with} for stopping and choosing",
        ),
    ]


def _list(seeds: Mapping[int, int] | Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
