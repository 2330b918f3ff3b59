"""Hashes that outlive new settings: what `Later` promises."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from harness.methods import known_methods, load_method
from harness.schema import records, settings
from harness.schema.identity import NEW, Identified, Later, digest, hashed
from harness.schema.networks import SHIPPED

VERSION_3 = Path(__file__).parent / "version_3"


class Before(Identified):
    rate: float = 0.1
    sizes: tuple[int, ...] = (1, 2)


class After(Before):
    """A version later: with a setting whose default is what was done before, and one whose default is not."""

    decay: Annotated[float, Field(ge=0), Later(before=0.0)] = 0.0
    nesterov: Annotated[bool, Later(before=False)] = True


class Holder(Identified):
    inner: Before = Before()


class LaterHolder(Identified):
    inner: After = After(nesterov=False)


def test_a_field_that_is_as_before_leaves_no_trace_in_a_hash() -> None:
    assert digest(After(nesterov=False)) == digest(Before())
    assert digest(LaterHolder()) == digest(Holder()), "nor inside another value"
    assert len({digest(After(decay=decay, nesterov=on)) for decay in (0.0, 0.1) for on in (False, True)}) == 4
    assert hashed(After(nesterov=False, decay=0.1)) == {"rate": 0.1, "sizes": [1, 2], "decay": 0.1}


def test_a_record_without_the_field_is_as_before_and_a_person_gets_the_default() -> None:
    written = Before(rate=0.3).model_dump_json()
    assert After.model_validate_json(written) == After(rate=0.3, nesterov=False)
    assert digest(After.model_validate_json(written)) == digest(Before(rate=0.3))
    assert After.model_validate_json(written, context=NEW) == After(rate=0.3, nesterov=True)
    assert After(rate=0.3).nesterov is True


@pytest.mark.parametrize("value", [After(), After(nesterov=False), After(decay=0.5, sizes=())], ids=str)
def test_what_is_written_is_read_again_whatever_it_was(value: After) -> None:
    assert "nesterov" in value.model_dump(), "records say everything"
    assert After.model_validate_json(value.model_dump_json()) == value


def test_every_field_since_version_3_says_what_was_done_before_it() -> None:
    """version_3/fields.json has the fields whose values are in every hash that was ever written. A new one is `Later`,
    or every result that exists is another one's."""
    modules = [vars(module).values() for module in (settings, records)]
    modules.append({each.__name__: each for each in SHIPPED.values()}.values())
    classes = {
        value.__name__: value
        for values in modules
        for value in values
        if isinstance(value, type) and issubclass(value, Identified) and value not in (Identified, settings.Settings)
    }
    classes |= {f"methods.{name}": type(load_method(name)[1]) for name in known_methods()}
    always = {
        name: [key for key, field in each.model_fields.items() if Later not in map(type, field.metadata)]
        for name, each in classes.items()
    }
    known = json.loads((VERSION_3 / "fields.json").read_text())
    assert {name: always.get(name) for name in known} == known
