"""The rate and the pixels of a step are functions of settings, seed, epoch and step."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import UserError
from harness.running.inputs import space_of
from harness.schema.settings import TrainingSettings
from harness.spaces import load_space
from harness.training.recipe import augmented, rate_factor
from harness.training.train import run_trial
from tests.pretend_gpu import pretend_gpu
from tests.tiny import config, conv_config, images, spirals

STEPS = 5


def rates(**settings: Any) -> list[float]:
    training = TrainingSettings(**{"max_epochs": 6, "patience": 6, **settings})
    return [
        training.lr * rate_factor(training, epoch, step, STEPS)
        for epoch in range(1, training.max_epochs + 1)
        for step in range(STEPS)
    ]


def torchs(schedule: Any) -> list[float]:
    """The rates of one of torch's schedules, stepped after every step."""
    optimiser = torch.optim.SGD([torch.zeros(1)], 0.1)
    made, found = schedule(optimiser), []
    for _ in range(6 * STEPS):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        made.step()
    return found


def test_schedules_are_torchs() -> None:
    t = torch.optim.lr_scheduler
    assert rates() == pytest.approx([0.1] * 6 * STEPS)
    assert rates(lr_drop_epoch=4) == pytest.approx(torchs(lambda o: t.MultiStepLR(o, [4 * STEPS], 0.1)))
    assert rates(schedule="cosine") == pytest.approx(torchs(lambda o: t.CosineAnnealingLR(o, 6 * STEPS)))
    warm = 2 * STEPS

    def warmed_up(optimiser: torch.optim.Optimizer) -> Any:
        parts = [t.LinearLR(optimiser, 1 / warm, total_iters=warm - 1), t.CosineAnnealingLR(optimiser, 4 * STEPS)]
        return t.SequentialLR(optimiser, parts, [warm])

    assert rates(schedule="cosine", warmup_epochs=2) == pytest.approx(torchs(warmed_up))
    assert rates(schedule="cosine")[-1] == pytest.approx(0.05 * (1 + math.cos(math.pi * 29 / 30)))


BAD = [
    ("training.schedule=cosine", "training.patience=100", "patience must be at least max_epochs = 1000; got 100"),
    (
        "training.schedule=cosine",
        "training.lr_drop_epoch=4",
        "cosine has no drop of the rate, leave it out; got lr_drop_epoch 4",
    ),
    ("training.warmup_epochs=1000", "training.lr=0.1", "fewer than all epochs, training.max_epochs = 1000; got 1000"),
    ("training.optimiser=adamw", "training.nesterov=true", "nesterov is for optimiser sgd"),
    ("training.optimiser=adam", "training.lr=0.1", "training.optimiser .*'sgd' or 'adamw'; got 'adam'"),
]


@pytest.mark.parametrize(("one", "two", "sentence"), BAD)
def test_recipes_that_contradict_themselves_are_refused(one: str, two: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_space("quickstart", [one, two])


def test_crops_on_rows_are_refused() -> None:
    trial = config("ddn", crop=2, flip=True)
    data = spirals(trial)
    with pytest.raises(UserError, match=r"crop 2 and training.flip needs images; .* are 2 features"):
        run_trial(trial, data)


def test_epochs_scale_a_schedule_that_was_not_set_by_hand() -> None:
    training = space_of("digits", epochs=30).training
    assert (training.max_epochs, training.lr_drop_epoch) == (30, 20)
    by_hand = space_of("digits", ["training.lr_drop_epoch=12"], epochs=30).training
    assert (by_hand.max_epochs, by_hand.lr_drop_epoch) == (30, 12)
    overrides = ["training.schedule=cosine", "training.lr_drop_epoch=null", "training.warmup_epochs=6"]
    space = load_space("digits", overrides)
    cosine = space_of(space, epochs=90).training
    assert (cosine.max_epochs, cosine.patience, cosine.warmup_epochs) == (90, 90, 9)


def pixels(n: int = 40) -> torch.Tensor:
    return torch.randn(n, 2, 8, 9, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)


def test_every_image_is_shifted_and_mirrored_by_itself() -> None:
    settings, x = TrainingSettings(max_epochs=1, patience=1, crop=2, flip=True), pixels()
    out = augmented(x, settings, seed=0, epoch=1, step=0)
    assert out.is_contiguous(memory_format=torch.channels_last)
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    seen = set()
    for before, after in zip(padded, out, strict=True):
        cuts = {(top, left): before[:, top : top + 8, left : left + 9] for top in range(5) for left in range(5)}
        both = {(*where, flipped): cut.flip(2) if flipped else cut for where, cut in cuts.items() for flipped in (0, 1)}
        found = [where for where, cut in both.items() if torch.equal(after, cut)]
        assert len(found) == 1
        seen.update(found)
    assert len(seen) > 20 and {flipped for *_, flipped in seen} == {0, 1}


def test_the_same_seed_epoch_and_step_have_the_same_pixels_on_every_device() -> None:
    settings, x = TrainingSettings(max_epochs=1, patience=1, crop=2, flip=True), pixels()
    first = augmented(x, settings, 0, 3, 2)
    assert torch.equal(first, augmented(x, settings, 0, 3, 2))
    others = [augmented(x, settings, *where) for where in ((1, 3, 2), (0, 4, 2), (0, 3, 3))]
    assert not any(torch.equal(first, other) for other in others)
    with pretend_gpu() as seen:
        there = x.to(seen.device)
        seen.take()
        on_gpu = augmented(there, settings, 0, 3, 2)
        assert not seen.take()[1], "nobody waits for the device"
        assert torch.equal(first, on_gpu.cpu())


RECIPE: dict[str, Any] = {
    "optimiser": "adamw",
    "lr": 0.01,
    "weight_decay": 0.05,
    "schedule": "cosine",
    "warmup_epochs": 2,
    "clip_norm": 1.0,
    "batch_size": 8,
    "patience": 8,
}


@pytest.mark.parametrize("kind", ["ldn", "ddn"])
def test_a_trial_goes_on_to_the_bit(kind: str, tmp_path: Path) -> None:
    trial, data = conv_config(kind, **RECIPE, crop=1, flip=True), images()
    saved = run_trial(trial, data, lambda progress, save: save(tmp_path / f"{progress.epoch}.pt"))
    torch.manual_seed(99)
    resumed = run_trial(trial, data, resume_from=tmp_path / "3.pt")
    other = resumed.network.state_dict()
    assert all(torch.equal(tensor, other[name]) for name, tensor in saved.network.state_dict().items())
    assert saved.progress.val == resumed.progress.val


def test_the_global_generator_is_left_alone() -> None:
    trial = conv_config("ddn", crop=1)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    run_trial(trial, images())
    assert torch.equal(state, torch.get_rng_state())
