"""Numbers of real units, computed again from their ledgers and models by code that shares nothing with the harness.

NumPy and JSON; torch only unpacks the weights. The rest of the repository only makes the units.
"""

import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from harness.comparing import compare
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running.runner import make_units, run_units
from harness.spaces import load_space
from tests.running.results import kill_nine, ledger, wait_for, workers_of

EPOCHS, EVERY, WIDTH, DEPTH, N_TRAIN, N_VAL, N_TEST = 400, 20, 8, 4, 120, 60, 90
PHASES = ("startup", "data", "compile", "train", "validate", "checkpoint")
Array = np.ndarray[Any, Any]


def rows() -> dict[str, Array]:
    made: dict[str, Array] = {}
    rng = np.random.default_rng(5)
    for part, n in (("train", N_TRAIN), ("val", N_VAL), ("test", N_TEST)):
        y = np.arange(n) % 2
        angle = 4 * rng.random(n) + np.pi * y
        x = (1 + angle)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.4, (n, 2))
        made |= {f"x_{part}": x.astype(np.float32), f"y_{part}": y}
    return made


# --- again, by itself -----------------------------------------------------------------------------------------------


def log_softmax(z: Array) -> Array:
    z = z - z.max(axis=-1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis=-1, keepdims=True)))


def predictions(model: dict[str, Any], data: dict[str, Array], alone: bool = False) -> Array:
    """a_0 = f_0(x), a_i = a_{i-1} + f_i(a_{i-1}); one depth, or all depths weighed by q, unless it is `alone`."""
    w = {name.removeprefix("backbone."): tensor.double().numpy() for name, tensor in model["weights"].items()}
    train = data["x_train"].astype(np.float64)
    a = (data["x_test"] - train.mean(axis=0)) / train.std(axis=0) @ w["stem.1.weight"].T + w["stem.1.bias"]
    states = [a]
    for i in range(model["d_opt"]):
        f = np.maximum(a @ w[f"blocks.{i}.0.weight"].T + w[f"blocks.{i}.0.bias"], 0)
        f = (f - w[f"blocks.{i}.2.running_mean"]) / np.sqrt(w[f"blocks.{i}.2.running_var"] + 1e-5)
        a = a + f * w[f"blocks.{i}.2.weight"] + w[f"blocks.{i}.2.bias"]
        states.append(a)
    per_depth = np.exp(log_softmax(np.stack(states) @ w["head.weight"].T + w["head.bias"]))
    if alone or "posterior.logits" not in w:
        return np.asarray(per_depth[-1])
    return np.asarray(np.einsum("d,dnc->nc", np.exp(log_softmax(w["posterior.logits"])), per_depth))


def measures(p: Array, y: Array) -> dict[str, float]:
    right, confidence = p.argmax(axis=1) == y, p.max(axis=1)
    bins = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    gaps = [abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean([right[y == c].mean() for c in np.unique(y)])),
        "log_likelihood": float(np.log(p[np.arange(len(y)), y]).mean()),
        "ece": float(sum(gaps)),
        "brier": float(((p - np.eye(2)[y]) ** 2).sum(axis=1).mean()),
    }


def tflop(depth: int, heads: int, epochs: int) -> float:
    """2·in·out for each product; a backward pass costs two of them, one where the rows need no gradient."""
    stem, block, head = 2 * 2 * WIDTH, 2 * WIDTH * WIDTH, 2 * WIDTH * 2
    trained = epochs * N_TRAIN * (2 * stem + 3 * depth * block + 3 * heads * head)
    looked = epochs // EVERY * N_VAL * (stem + depth * block + heads * head)
    return (trained + looked) / 1e12


def trials_of(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each trial: its last report, and seconds by phase; attempts one after the other, the last one kept."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        name = str(event.get("trial"))
        match event["event"]:
            case "suggest" if event["task"]["do"] == "train":
                found[name] = {"depth": event["task"]["config"]["depth"], "attempts": []}
            case "start" if name in found:
                found[name]["attempts"].append({"began": event["time"], "from": 0.0, "warm_up": 0.0})
            case "report" if name in found:
                attempt, report = found[name]["attempts"][-1], event["report"]
                if facts := report["facts"]:
                    attempt |= {"from": facts["resumed_from"]["held_seconds"], "warm_up": facts["worker_start"][1]}
                found[name]["last"] = report["progress"] or found[name].get("last")
            case "died" | "end" if name in found:
                found[name]["attempts"][-1].setdefault("ended", event["time"])
    for trial in found.values():
        attempts, named = trial["attempts"], trial["last"]["cost"]["phases"]
        held = [each["ended"] - each["began"] - each["warm_up"] for each in attempts]
        kept = [after["from"] - each["from"] for each, after in itertools.pairwise(attempts)]
        lost = sum(held[:-1]) - sum(kept)
        known = {phase: named[phase] for phase in PHASES}
        trial["phases"] = {**known, "lost": lost, "other": sum(held) - lost - sum(known.values())}
    return found


def check_unit(folder: Path, data: dict[str, Array], learns: bool) -> dict[str, dict[str, Any]]:
    events = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    trials = trials_of(events)
    for phase in (*PHASES, "lost", "other"):
        seconds = sum(trial["phases"][phase] for trial in trials.values())
        assert result["cost"]["phases"][phase] == pytest.approx(seconds, rel=1e-9, abs=1e-6), phase
    held = sum(sum(trial["phases"].values()) for trial in trials.values())
    assert result["cost"]["held_seconds"] * result["cost"]["devices"] == pytest.approx(held, rel=1e-9)
    wanted = sum(tflop(t["depth"], t["depth"] + 1 if learns else 1, t["last"]["epoch"]) for t in trials.values())
    assert result["cost"]["tflop"] == pytest.approx(wanted, rel=1e-12)

    best = max(trial["last"]["val"]["log_likelihood"] for trial in trials.values())
    good = {n: t for n, t in trials.items() if t["last"]["val"]["log_likelihood"] >= best - 1e-4}
    chosen = min(good, key=lambda name: good[name]["depth"])
    d_opt = int(np.argmax(good[chosen]["last"]["posterior"]["q"])) if learns else good[chosen]["depth"]
    assert (result["chosen_trial"], result["d_opt"]) == (chosen, d_opt)

    model = torch.load(folder / "model.pt", weights_only=True)
    assert model["d_opt"] == d_opt
    test = measures(predictions(model, data), data["y_test"])
    assert {name: result["final"]["chosen"][name] for name in test} == pytest.approx(test, abs=2e-5)
    assert result["final"]["n_test"] == N_TEST
    return trials


# --- the units ------------------------------------------------------------------------------------------------------


def space_in(folder: Path, data: dict[str, Array]) -> None:
    np.savez(folder / "rows.npz", **data)  # type: ignore[arg-type]  # its first keyword is a flag
    space = {
        "name": "recomputed",
        "data": {"kind": "arrays", "path": "rows.npz"},
        "network": {"kind": "fc", "width": WIDTH},
        "depth": {"max": DEPTH},
        "posterior": {"rule": "argmax"},
        "training": {"max_epochs": EPOCHS, "patience": EPOCHS, "eval_every": EVERY, "report_every": EVERY},
    }
    (folder / "recomputed.yaml").write_text(yaml.safe_dump(space))


def units_in(folder: Path, data: dict[str, Array], replay: bool) -> Path:
    """One-shot, every depth, a few of them, some stopped early."""
    space_in(folder, data)
    methods = parse_methods("grid,ldn,optuna_tpe,asha:reduction_factor=2:grace_epochs=40")
    options = RunOptions(out=folder / "out", workers=1, concurrency=1, replay=replay)
    outcome = run_units(make_units([load_space("recomputed.yaml")], methods, [0], options), options)
    assert outcome.failures == {}
    return folder / "out"


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("replay", [False, True])
def test_cost_choice_and_test_measures_of_a_unit_of_each_kind(
    replay: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of the first unit is killed on the way; searches over depths are live, or replayed from its trials."""
    monkeypatch.chdir(tmp_path)
    data = rows()

    def kill() -> None:
        """Once something was reported, so that there is work to be lost, and not yet ended."""
        out = tmp_path / "out"
        wait_for(lambda: "report" in {e["event"] for e in ledger(out, "grid", space="recomputed")[4:]}, "a report")
        for pid in workers_of(os.getpid())[:1]:
            kill_nine(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    out = units_in(tmp_path, data, replay)
    killer.join()
    attempts, epochs, replayed = [], set(), set()
    for folder in sorted(out.glob("recomputed/*/seed-0")):
        trials = check_unit(folder, data, learns=folder.parent.name == "ldn")
        attempts += [len(trial["attempts"]) for trial in trials.values()]
        epochs |= {trial["last"]["epoch"] for trial in trials.values()}
        if json.loads((folder / "plan.json").read_text()).get("replayed"):
            replayed.add(folder.parent.name.partition(":")[0])
    assert max(attempts) == 2 and min(epochs) < EPOCHS == max(epochs), "a retry, and a trial that was stopped"
    assert replayed == ({"asha", "optuna_tpe"} if replay else set())


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_the_three_parts_of_what_each_one_shot_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From models alone: of a one-shot, of the search's choice, and of the retrained depth, which is that search's."""
    monkeypatch.chdir(tmp_path)
    data = rows()
    one_shots = [name for name, method in parse_methods("all").items() if method.learns_depth]
    methods = ",".join([*one_shots, *(f"{name}:then=retrain" for name in one_shots), "grid"])
    space_in(tmp_path, data)
    options = RunOptions(out=tmp_path / "lost", workers=1, concurrency=1)
    outcome = run_units(make_units([load_space("recomputed.yaml")], parse_methods(methods), [0], options), options)
    assert outcome.failures == {}

    def on_test(row: str, alone: bool = False) -> float:
        model = torch.load(tmp_path / "lost" / "recomputed" / row / "seed-0" / "model.pt", weights_only=True)
        return measures(predictions(model, data, alone), data["y_test"])["log_likelihood"]

    found = {each.method: each.per_seed["test_log_likelihood"] for each in compare(outcome.units).losses}
    assert set(one_shots) < set(found)
    for name in one_shots:
        at_choice, at_d_opt = on_test("grid"), on_test(f"{name}:then=retrain")
        inside, handed_over = on_test(name, alone=True), on_test(name)
        parts = {"wrong depth": at_choice - at_d_opt, "shared weights": at_d_opt - inside}
        parts |= {"averaging": inside - handed_over, "in all": at_choice - handed_over}
        assert {part: values[0] for part, values in found[name].items()} == pytest.approx(parts, abs=5e-5), name
    parts_of_posteriors = [abs(found[name]["averaging"][0]) for name in ("ldn", "ldn_em")]
    assert max(parts_of_posteriors) > 1e-3  # what is compared is no row of zeros
