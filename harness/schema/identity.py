"""What makes two results comparable."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value object: typed strictly, checked once in the constructor, never changed, to and from JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
