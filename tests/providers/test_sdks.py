"""The table of SDKs: schemas as strict mode wants them, settings under the SDK's names."""

from __future__ import annotations

import pytest

from muntin.providers.sdks import APIS, strict_schema

TEXT = {"type": "string"}


def an_object(**properties):
    return {"type": "object", "properties": properties}


def closed(**properties):
    return an_object(**properties) | {"required": list(properties), "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (TEXT, TEXT),
        (an_object(a=TEXT), closed(a=TEXT)),
        (an_object(a=TEXT | {"default": "x"}), closed(a=TEXT)),
        (an_object(default=TEXT), closed(default=TEXT)),
        (an_object(a=an_object(b=TEXT)), closed(a=closed(b=TEXT))),
        (
            {"type": "array", "items": an_object(a=TEXT)},
            {"type": "array", "items": closed(a=TEXT)},
        ),
        (
            an_object(a={"anyOf": [an_object(b=TEXT), {"type": "null"}]}),
            closed(a={"anyOf": [closed(b=TEXT), {"type": "null"}]}),
        ),
        (
            {"$defs": {"P": an_object(b=TEXT)}, **an_object(p={"$ref": "#/$defs/P"})},
            {"$defs": {"P": closed(b=TEXT)}, **closed(p={"$ref": "#/$defs/P"})},
        ),
        # What strict mode cannot say.
        (an_object(a={"type": "object", "additionalProperties": TEXT}), None),
        (an_object(a={"type": "object"}), None),
        (an_object(a={"oneOf": [TEXT]}), None),
        (an_object(a={"type": "array", "items": {"type": "object"}}), None),
        (an_object(a={"anyOf": [TEXT, {"type": "object"}]}), None),
        ({"$defs": {"P": {"type": "object"}}, **an_object(p={"$ref": "#/$defs/P"})}, None),
    ],
    ids=str,
)
def test_a_schema_is_closed_or_left_alone(schema, strict):
    before = repr(schema)
    assert strict_schema(schema) == strict
    assert repr(schema) == before


@pytest.mark.parametrize(("provider", "api"), APIS)
@pytest.mark.parametrize(
    ("address", "elsewhere"),
    [
        (None, False),
        ("https://api.openai.com/v1", False),
        ("https://eu.api.openai.com/v1", False),
        ("https://notopenai.com/v1", True),
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.1:8000", True),
    ],
)
def test_elsewhere_is_any_host_but_the_vendors(provider, api, address, elsewhere, monkeypatch):
    spec = APIS[provider, api]
    monkeypatch.delenv(spec.address, raising=False)
    given = address and address.replace("openai.com", spec.host)
    assert spec.elsewhere(given) is elsewhere
    if given:
        monkeypatch.setenv(spec.address, given)
        assert spec.elsewhere(None) is elsewhere
