"""One line of `harness doctor`: what was checked, whether it is fine, and what to do if it is not."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str  # what was found
    remedy: str = ""  # what to do about it; empty when there is nothing to do
    fatal: bool = True  # False: a run may start in spite of it

    def __post_init__(self) -> None:
        if not self.ok and not self.remedy:
            raise ValueError(f"a failed check must say what to do: {self.name}")


def verdict(name: str, problems: list[str], fine: str, remedy: str) -> Check:
    """A check that fails if there are problems, and shows all of them."""
    return Check(name, False, "; ".join(problems), remedy) if problems else Check(name, True, fine)
