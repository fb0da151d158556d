"""What tests of prompts ask, and how they look at the answer."""

from __future__ import annotations

import asyncio
import gc
import warnings
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from muntin import prompt
from tests.words import Tenant as Tenant


class Research(BaseModel):
    synthesis: str


def look(p, input=None, **options):
    """Inspect with one token a character, to keep the sums easy."""
    return p.inspect_sync(input, **{"tokenizer": len, **options})


def kept(inspection):
    return [part.source for part in inspection.system.parts if part.status == "kept"]


def dropped(inspection):
    return [each.source for each in sorted(inspection.dropped_contexts, key=lambda d: d.rank)]


def excluded(inspection):
    return {each.source: each.reason for each in inspection.excluded_contexts}


def text_of(*contexts, own="own", input=None, **options):
    return look(prompt(use=contexts, system=own), input, **options).system.text


def schema(name, wrapped=True):
    function = {"name": name, "description": "d", "parameters": {"type": "object"}}
    return {"type": "function", "function": function} if wrapped else function


def say(log: list[Any], entry: object, text: str) -> str:
    log.append(entry)
    return text


@contextmanager
def nothing_left_behind():
    """No coroutine was made and then forgotten."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(each.message) for each in caught] == []


def never(*_: object) -> Any:
    raise AssertionError("this must not be called")


class Broken(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)


async def agrees(*_: object) -> bool:
    return True


async def later() -> str:
    await asyncio.sleep(0)
    return "later"
