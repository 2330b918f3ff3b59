"""What changes from step to step of a training: the rate, and the pixels.

Both are functions of settings, seed, epoch and step, so that a checkpoint need not hold anything of them.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.data.on_device import sent
from harness.errors import UserError
from harness.schema.settings import TrainingSettings
from harness.seeds import torch_generator


def rate_factor(settings: TrainingSettings, epoch: int, step: int, steps: int) -> float:
    """What all rates are multiplied by in step 0, 1, … of the `steps` of an epoch 1, 2, …

    Warm-up: (t + 1) / w in step t of its w steps. Cosine: (1 + cos(π · t / T)) / 2 in step t of the T after it.
    """
    passed, warm_up = (epoch - 1) * steps + step, settings.warmup_epochs * steps
    if passed < warm_up:
        return (passed + 1) / warm_up
    if settings.schedule == "cosine":
        return (1 + math.cos(math.pi * (passed - warm_up) / (settings.max_epochs * steps - warm_up))) / 2
    dropped = settings.lr_drop_epoch is not None and epoch > settings.lr_drop_epoch
    return settings.lr_drop_factor if dropped else 1.0


def check_augmentation(settings: TrainingSettings, sample_shape: tuple[int, ...]) -> None:
    """Raises UserError where samples cannot be cropped or flipped."""
    asked = [f"training.crop {settings.crop}"] * bool(settings.crop) + ["training.flip"] * settings.flip
    if asked and len(sample_shape) != 3:
        raise UserError(
            f"{' and '.join(asked)} needs images; this data set's samples are {math.prod(sample_shape)} features "
            "without a shape, leave it out"
        )


def augmented(x: Tensor, settings: TrainingSettings, seed: int, epoch: int, step: int) -> Tensor:
    """A batch of normalised images (N, C, H, W), shifted by up to `crop` pixels and half of them mirrored, on its
    device. What a shift uncovers is 0, the mean. Drawn on the CPU: every device has the same pixels."""
    if not (settings.crop or settings.flip):
        return x
    n, _, height, width = x.shape
    random, p = torch_generator(seed, "augment", epoch, step), settings.crop
    shifts = torch.randint(2 * p + 1, (2, n, 1), generator=random)
    mirrored = torch.rand(n, 1, generator=random) < (0.5 if settings.flip else 0.0)
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.where(mirrored, torch.arange(width - 1, -1, -1), torch.arange(width))
    padded = F.pad(x, (p, p, p, p)).permute(0, 2, 3, 1)  # (N, H, W, C): as it lies in memory
    which = sent(padded.shape[2] * rows[:, :, None] + columns[:, None, :], x.device)  # (N, H, W)
    flat = padded.reshape(n, -1, padded.shape[3])
    each = torch.arange(n, device=x.device)[:, None]
    return flat[each, which.flatten(1)].view(n, height, width, -1).permute(0, 3, 1, 2)
