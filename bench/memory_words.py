"""The words of the conversations that measure recall, in four languages; they stand
in a file beside this module."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Topic(NamedTuple):
    """Words of a topic, a fact, and what asks for it; the evidence is a part of the fact."""

    subject: Sequence[str]
    fact: str
    question: str
    evidence: str


class Wish(NamedTuple):
    """What a user wants for good, and a question to which it applies."""

    text: str
    question: str


class Update(NamedTuple):
    """A fact that changes: its text with a place for the value, and what asks for it."""

    text: str
    values: Sequence[str]
    question: str


class Language(NamedTuple):
    """A language: what is said and asked in it."""

    name: str
    topics: Sequence[Topic]
    wishes: Sequence[Wish]
    updates: Sequence[Update]
    # What a user writes, what an assistant does: with places for words of the topic.
    requests: Sequence[str]
    sentences: Sequence[str]
    echo: str
    agreed: str
    joint: str
    # What a user says who will know later, and what the user says then.
    considers: str
    settles: str


def _language(name: str, words: Mapping[str, Any]) -> Language:
    return Language(
        name,
        [Topic(subject.split(","), *rest) for subject, *rest in words["topics"]],
        [Wish(*wish) for wish in words["wishes"]],
        [Update(text, values.split(","), asked) for text, values, asked in words["updates"]],
        words["requests"],
        words["sentences"],
        words["echo"],
        words["agreed"],
        words["joint"],
        words["considers"],
        words["settles"],
    )


_FILE = Path(__file__).with_suffix(".json")
LANGUAGES = [_language(*pair) for pair in json.loads(_FILE.read_text("utf-8")).items()]
