"""What the processes of a test noted, read: who handled what, when, and whether that was right."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muntin.timeline.store import Store


@dataclass
class Noted:
    """The wakes that were begun, ended and cut off; two of one entity at once; take-over times."""

    begun: int = 0
    cut: int = 0
    overlaps: list[str] = field(default_factory=list)
    taken_over: list[float] = field(default_factory=list)
    handled: dict[str, list[tuple[int, list[Any]]]] = field(
        default_factory=lambda: defaultdict(list)
    )


def read_log(log: Path) -> Noted:
    """Read what was noted; a line `killed TIME NAME` excuses what that process had begun."""
    noted = Noted()
    running: dict[str, dict[str, int]] = defaultdict(dict)
    killed: set[str] = set()
    open_since: dict[tuple[str, int], float] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        kind, time, *rest = line.split(" ", 5)
        if kind == "killed":
            killed.add(rest[0])
            for entity, by in running.items():
                if rest[0] in by:
                    noted.cut += 1
                    open_since[entity, by.pop(rest[0])] = float(time)
            continue
        entity, number, name = rest[0], int(rest[1]), rest[2]
        if kind == "begins":
            noted.begun += 1
            noted.overlaps += [f"{entity}: {name} beside {other}" for other in running[entity]]
            if name not in killed:
                running[entity][name] = number
            if (entity, number) in open_since:
                noted.taken_over.append(float(time) - open_since.pop((entity, number)))
        elif running[entity].pop(name, None) is not None:
            noted.handled[entity].append((number, json.loads(rest[3])))
    return noted


def wrong(store: Store, noted: Noted, entities: int, messages: int) -> list[str]:
    """Return what was lost, doubled, left or handled out of order; nothing if all is well."""
    found = []
    for entity in (f"e/{number}" for number in range(entities)):
        stored = [item.content for item in store.read(entity) if item.kind == "message"]
        if list(dict.fromkeys(stored)) != list(range(messages)):
            found.append(f"{entity}: stored {stored}")
        turns = store.turns(entity)
        found += [f"{entity}: {turn}" for turn in turns if turn.status != "completed"]
        # A wake whose process died behind its end, before that was stored, is run again.
        last = dict(noted.handled[entity])
        if [number for number, _ in noted.handled[entity]] != sorted(
            number for number, _ in noted.handled[entity]
        ):
            found.append(f"{entity}: out of order {noted.handled[entity]}")
        handled = [event for number in sorted(last) for event in last[number]]
        if handled != stored:
            found.append(f"{entity}: stored {stored}, handled {handled}")
    return found
