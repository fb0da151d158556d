"""Adaptations: small changes of a prompt for one provider, and how settings merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from muntin.core.checks import check_text
from muntin.core.model_name import ModelName
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.gathered import Gathered, SystemPart
from muntin.settings import check_settings


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What is changed: texts before and after, and settings."""

    prepend_system: str = ""
    append_system: str = ""
    prepend_prompt: str = ""
    append_prompt: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, source: str, gathered: Gathered) -> Gathered:
        """Return what was gathered with the changes, the system texts as parts of their own."""
        before, after = (
            [SystemPart(source, text.strip("\n"))] if text.strip("\n") else []
            for text in (self.prepend_system, self.append_system)
        )
        user = gathered.user
        if user is not None:
            user = f"{self.prepend_prompt}{user}{self.append_prompt}"
        return replace(gathered, parts=(*before, *gathered.parts, *after), user=user)


_FIELDS = tuple(each.name for each in fields(Adaptation))


def adaptations(
    given: Mapping[str, Mapping[str, Any]] | None, what: str
) -> Mapping[str, Adaptation]:
    """Check the `adapt` entries of a prompt."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidType(f"{what}: adapt must map a provider to changes, not {given!r}")
    return {
        check_text(key, f"{what}: a provider in adapt"): _adaptation(
            entry, f"{what}: adapt[{key!r}]"
        )
        for key, entry in given.items()
    }


def _adaptation(entry: Any, what: str) -> Adaptation:
    if not isinstance(entry, Mapping):
        raise InvalidType(f"{what} must be a mapping, not {entry!r}")
    for name, value in entry.items():
        if name not in _FIELDS:
            raise InvalidInput(f"{what}: unknown field {name!r}; use {', '.join(_FIELDS)}")
        if name == "settings":
            check_settings(value, what)
        else:
            check_text(value, f"{what}: {name}")
    return Adaptation(**{**entry, "settings": dict(entry.get("settings") or {})})


def choose(
    entries: Mapping[str, Adaptation], provider: str | None, model_id: str | None
) -> tuple[str, Adaptation]:
    """Return the one entry that applies: the provider's, the model's route, or `*`."""
    route = ModelName.parse(model_id).provider if model_id else None
    for key in (provider, route, "*"):
        if key is not None and key in entries:
            return key, entries[key]
    return "", Adaptation()


def merge_settings(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Lay settings over each other, later ones winning; None never erases."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update({key: value for key, value in (layer or {}).items() if value is not None})
    return merged
