"""Run rules: how a door shows tool results and long runs, and what it recalls.

Owns the four arguments that every door takes, their checks, and which door's value counts. Each is
a switch: True is the library's own, False or None is off, "inherit" takes the outer door's value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from muntin.core.checks import shown
from muntin.core.planning.compact import LADDER, RESULTS, Ladder, Results, as_shapes
from muntin.errors import InvalidType
from muntin.timeline.recall.settings import Recall, RecallLike, check_recall

INHERIT: Literal["inherit"] = "inherit"
ResultsLike: TypeAlias = Results | bool | Literal["inherit"] | None
LadderLike: TypeAlias = Ladder | bool | Literal["inherit"] | None
RecoveryLike: TypeAlias = bool | Literal["inherit"] | None


@dataclass(frozen=True, slots=True)
class RunRules:
    """The ceiling of each result, the ladder, whether recovery tools are offered, and recall.

    "inherit" means: take the value of the outer door.
    """

    results: Results | Literal["inherit"] | None = INHERIT
    ladder: Ladder | Literal["inherit"] | None = INHERIT
    recovery: bool | Literal["inherit"] = INHERIT
    recall: Recall | Literal["inherit", False] = INHERIT

    @classmethod
    def of(
        cls,
        what: str,
        results: ResultsLike,
        ladder: LadderLike,
        recovery: RecoveryLike,
        recall: RecallLike = INHERIT,
    ) -> RunRules:
        """Return the checked rules of a door; `what` names the door in errors."""
        ceiling, steps = as_shapes(
            what, None if results == INHERIT else results, None if ladder == INHERIT else ladder
        )
        if recovery != INHERIT and not isinstance(recovery, bool | None):
            raise InvalidType(
                f"{what}: recovery must be True, False or None, not {shown(recovery)}"
            )
        return cls(
            INHERIT if results == INHERIT else ceiling,
            INHERIT if ladder == INHERIT else steps,
            INHERIT if recovery == INHERIT else bool(recovery),
            check_recall(recall, what),
        )

    def over(self, around: RunRules) -> RunRules:
        """Return these rules; the outer door's value where a rule here is "inherit"."""
        return RunRules(
            around.results if self.results == INHERIT else self.results,
            around.ladder if self.ladder == INHERIT else self.ladder,
            around.recovery if self.recovery == INHERIT else self.recovery,
            around.recall if self.recall == INHERIT else self.recall,
        )

    @property
    def shapes(self) -> tuple[Results | None, Ladder | None]:
        """The ceiling and the ladder; the library's own where no door gave one."""
        results = RESULTS if self.results == INHERIT else self.results
        return results, LADDER if self.ladder == INHERIT else self.ladder

    @property
    def recalls(self) -> Recall | None:
        """The recall settings; the defaults where no door gave any."""
        if self.recall == INHERIT:
            return Recall()
        return self.recall or None

    @property
    def recovers(self) -> bool:
        """Whether recovery tools are offered."""
        return self.recovery is not False


NO_RULES = RunRules()
