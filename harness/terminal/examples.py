"""What the help of each command ends with: examples that can be copied. A test parses every one."""

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "init": ("harness init penguins.csv --target species", "harness init photos/"),
    "run": (
        "harness run quickstart --seeds 0,1 --dry-run",
        "harness run digits --methods ldn,asha:grace_epochs=20,grid --seeds 0-9",
        "harness run digits --methods all --replay --seeds 0-39 --until-verdict",
    ),
    "study": ("harness study width --seeds 1 --dry-run", "harness study max_depth --vary depth.max=5,10 --seeds 2"),
    "compare": ("harness compare quickstart", "harness compare quickstart --reference elastic --format csv"),
    "replay": (
        "harness replay quickstart",
        "harness replay digits --methods asha,asha:reduction_factor=2 --devices 1,8",
        "harness replay quickstart digits mnist_small --methods mine.py",
    ),
    "export": ("harness export quickstart quickstart.json.gz",),
    "report": ("harness report quickstart --usd-per-hour 0.50",),
    "pull": ("harness pull s3://bucket/results quickstart",),
    "sync": (
        "harness sync",
        "harness sync digits --tracking-uri http://127.0.0.1:5000 --experiment team/depths",
    ),
    "ui": ("harness ui quickstart --open",),
    "trial": ("harness trial spirals --method ldn --test", "harness trial digits --depth 4 --json"),
    "check": ("harness check asha", "harness check results"),
    "doctor": ("harness doctor", "harness doctor ray_cluster.yaml", "harness doctor --gpu"),
    "show": ("harness show quickstart --set depth.max=20", "harness show asha"),
    "list": ("harness list",),
}


def epilog(command: str) -> str | None:
    """`\\b` keeps the lines apart, which click would join."""
    known = EXAMPLES.get(command)
    return "\n".join(["\b", "Examples:", *(f"  {each}" for each in known)]) if known else None
