"""What follows the one training of a one-shot method (`then=`): options that every one of them has, none of its own."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from harness.schema.identity import Frozen, Identified, Later

DEFAULT_SHARE, DEFAULT_K = 0.2, 2


Then = Annotated[Literal["retrain", "finetune", "top"] | None, Later(before=None)]


class Stage(Identified):
    """The second half of a one-shot method. The network of the first half is the same whatever follows it."""

    model_config = ConfigDict(validate_default=True, use_attribute_docstrings=True)

    then: Then = None
    """What follows the training: `retrain` trains a network of d_opt blocks from scratch; `finetune` cuts the trained
    network at d_opt and trains that depth on; `top` retrains d_opt and the next best depths, and validation decides;
    null: nothing, the trained network is handed over."""
    share: Annotated[float, Field(gt=0, le=1), Later(before=DEFAULT_SHARE)] = DEFAULT_SHARE
    """With then=finetune: the share of the most epochs, the last ones of the schedule."""
    k: Annotated[int, Field(gt=0), Later(before=DEFAULT_K)] = DEFAULT_K
    """With then=top: how many depths are retrained."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        given = {"share": (self.share != DEFAULT_SHARE, "finetune"), "k": (self.k != DEFAULT_K, "top")}
        for option, (is_set, then) in given.items():
            if is_set and self.then != then:
                raise ValueError(f"{option} belongs to then={then}; got then={self.then or 'null'}")
        return self

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Stage":
        """Of a one-shot method's options as a plan has them. Up to version 0.3.0 one could have a `k` of its own."""
        known = {name: value for name, value in options.items() if name in Stage.model_fields}
        return Stage.model_validate(known if "then" in known else {})

    def left_out_of(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What is left identifies the one-shot's own training."""
        return {name: value for name, value in options.items() if self.then is None or name not in Stage.model_fields}

    @property
    def most_trials(self) -> int:
        return {None: 0, "retrain": 1, "finetune": 1, "top": self.k}[self.then]

    def depths(self, d_opt: int, ranking: Sequence[float]) -> tuple[int, ...]:
        """To be trained: d_opt; of `top` the k − 1 with the largest values of the others too, the smaller in a tie."""
        others = sorted(set(range(len(ranking))) - {d_opt}, key=lambda depth: (-ranking[depth], depth))
        return (d_opt, *others)[: self.most_trials]


class Cut(Frozen):
    """Of a fine-tuned network: the one-shot network that it was cut from, and how long it is trained on."""

    kind: str
    depth: Annotated[int, Field(ge=0)]  # of the one-shot network
    options: dict[str, Any]
    share: Annotated[float, Field(gt=0, le=1)]  # of the most epochs
