"""JSON Schemas: what their files leave out follows from the classes that are written."""

from typing import Any

import pytest
from tables import gives

from roofline.errors import Error
from roofline.machine import Ceiling, EmpiricalRoofline
from roofline.machine.fit import Fit
from roofline.schemas import _property, kinds, schema


@pytest.mark.parametrize("kind", kinds())
def test_every_object_says_what_it_has(kind: str) -> None:
    """Whatever no class is behind states its types itself."""
    pytest.importorskip("jsonschema").Draft202012Validator.check_schema(schema(kind))
    known = {"type", "$ref", "const", "enum", "anyOf", "oneOf"}

    def look(part: Any, where: str) -> None:
        for name, item in part.get("properties", {}).items():
            assert known & item.keys(), f"{where}: {name}"
            look(item, f"{where}: {name}")
        for items in (part.get("items"), *part.get("$defs", {}).values()):
            if items:
                look(items, where)

    look(schema(kind), kind)


test_types_are_those_of_the_class = gives(
    lambda name, given: _property(name, given, Ceiling, {}),
    ("threads", "of the probe", {"type": "integer", "minimum": 0, "description": "of the probe"}),
    ("clock_hz", {}, {"type": ["number", "null"], "minimum": 0}),
    ("samples", {"minItems": 1}, {"type": "array", "items": {"type": "number", "minimum": 1e-15}, "minItems": 1}),
    ("label", {}, {"type": "string"}),  # a property
    ("status", {"enum": ["ok"]}, {"enum": ["ok"]}),
)


def test_records_are_definitions() -> None:
    assert _property("fit", {}, EmpiricalRoofline, {Fit: "fit"}) == {"$ref": "#/$defs/fit"}
    with pytest.raises(KeyError):
        _property("pace", "no field of it", Ceiling, {})
    with pytest.raises(TypeError, match="no JSON form is known of .*Fit"):
        _property("fit", {}, EmpiricalRoofline, {})
    with pytest.raises(Error, match="the kind of a schema must be one of census, .*, got 'bill'"):
        schema("bill")
