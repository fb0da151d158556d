"""Slots: named places in the window, each with its rules.

Owns what may be declared and that a wrong declaration is an error naming slot and option. It
decides nothing: that is `planner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from muntin.core.budget import Budget, as_budget
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.checks import check_text, shown
from muntin.core.counting.counter import AttachmentTokens, Counter, TokenizerLike
from muntin.core.cutting import Keep
from muntin.core.forms import messages_from
from muntin.core.message import ROLES, Input, Message, Role, as_message
from muntin.core.parts import Attachment
from muntin.core.planning.carrying import ADDED, plan_with_tools
from muntin.core.planning.compact import RESULTS, Ladder, Results, as_shapes
from muntin.core.planning.memory import is_conversation
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.slot import (
    EXACT,
    VOLATILE,
    Content,
    Exact,
    Group,
    Kind,
    Marker,
    MessageLike,
    Place,
    Pool,
    Recap,
    Size,
    Slot,
    Stepped,
    Tier,
    Trim,
    TrimBehavior,
    Trimming,
    check_slot,
)
from muntin.core.profile import Profile, as_profile
from muntin.core.schemas import Schemas
from muntin.core.tool_marks import ToolSource
from muntin.core.toolboxes.offer import ToolSearch
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType

INHERIT: Literal["inherit"] = "inherit"


class Slots:
    """Slots collects what may go into the window; `render` composes it.

    `tokenizer` may be a Tokenizer, a callable, or a name; `tools` are schemas that are sent along
    and counted, in the order of their names where the profile prices caching; `profile` is a
    Profile or a model name such as `anthropic/claude-sonnet-4-6`. A `Toolbox` among the tools is
    searched when it does not fit, as `tool_search` says; `window.tool_search` answers. `previous`
    is the window before this one, or its `frontier`: conversations go on from there, and the report
    compares the beginnings of the two windows. Without `trimming`, conversations are trimmed in
    steps if `previous` is given, else exactly. A `counter` counts in the place of `tokenizer`.
    `results` is the ceiling of each tool result in lists of messages when something must give,
    `ladder` how calls and results leave: True is Muntin's own, False or None is off. With
    `recovery` the lines about cut parts name the tool `load_result`. `recap` is the newest
    summary of the history, which stands in front of it from its next move on. `binds` says
    whether thoughts of Claude's are sent only while all that stood before them stays; without
    it the profile does.
    """

    def __init__(
        self,
        budget: Budget | int,
        *,
        tokenizer: TokenizerLike | None = None,
        tools: Iterable[Mapping[str, Any] | ToolSource] = (),
        profile: Profile | str | None = None,
        trimming: Trimming | None = None,
        previous: Window | Frontier | LazyFrontier | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        counter: Counter | None = None,
        results: Results | bool | None = RESULTS,
        ladder: Ladder | bool | None = None,
        recovery: bool = False,
        recap: Recap | None = None,
        binds: bool | None = None,
        tool_search: ToolSearch | bool | None = True,
    ) -> None:
        self.budget = budget if isinstance(budget, Budget) else as_budget(budget)
        self.profile = profile if isinstance(profile, Profile | None) else as_profile(profile)
        self.counter = counter or Counter.of(
            self.profile, tokenizer=tokenizer, attachment_tokens=attachment_tokens
        )
        self.tools = tools if isinstance(tools, Schemas) else self._offered(tools, tool_search)
        if self.profile is not None and self.profile.caching is not None:
            self.tools = self.tools.by_name
        if not isinstance(trimming, Exact | Stepped | None):
            raise InvalidType(f"trimming must be Exact() or Stepped(), not {shown(trimming)}")
        if trimming is None:
            trimming = EXACT if previous is None else Stepped()
        self.trimming = trimming
        if previous is not None and not isinstance(previous, Window | Frontier | LazyFrontier):
            raise InvalidType(
                f"previous must be a Window, its frontier, or None, not {shown(previous)}"
            )
        self.previous = previous
        self.results, self.ladder = as_shapes("Slots", results, ladder)
        self.recovery = recovery
        self.recap = recap
        is_bound = self.profile is not None and self.profile.binds
        self._binds = is_bound if binds is None else binds
        self._slots: list[Slot] = []
        self._has_input = False

    def __repr__(self) -> str:
        tokens, tokenizer = self.budget.remaining_input_tokens, self.counter.name
        return f"<Slots tokens={tokens} tokenizer={tokenizer!r} slots={len(self._slots)}>"

    def _offered(
        self,
        tools: Iterable[Mapping[str, Any] | ToolSource],
        search: ToolSearch | bool | None,
    ) -> Schemas:
        """Return the schemas of tools; with toolboxes, what requests say of them."""
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            return Schemas.of(tools)
        listed = list(tools)
        if not any(isinstance(tool, ToolSource) for tool in listed):
            return Schemas.of(listed)  # type: ignore[arg-type]
        from muntin.agent.toolbox import offer_for_slots  # late: it knows how tools are run

        return offer_for_slots(
            listed,
            search,
            budget=self.budget.remaining_input_tokens,
            counter=self.counter,
            loading="text" if self.profile is None else self.profile.tool_loading,
        )

    def add(
        self,
        name: str,
        content: Content,
        *,
        priority: int = 0,
        max_ratio: float = 1.0,
        min_ratio: float = 0.0,
        min_tokens: int = 0,
        position: int | None = None,
        role: Role | None = None,
        trim_behavior: TrimBehavior = "message",
        max_tokens: int | None = None,
        tier: Tier | None = None,
        keep: Keep = "tail",
        required: bool = False,
        group: Group | None = None,
        pool: Pool | None = None,
        marker: Marker | None = None,
        frame: tuple[str, str] | None = None,
        trimming: Trimming | None = None,
        breakpoint: bool = False,
        changes: bool = False,
        detail: str | None = None,
        at: float | None = None,
        results: Results | bool | Literal["inherit"] | None = INHERIT,
        ladder: Ladder | bool | Literal["inherit"] | None = INHERIT,
        run: bool | None = None,
    ) -> None:
        """Add content to a named place in the window.

        A list is read at `render`, not copied: messages that cannot fit are never read. A single
        text that is larger than its ceiling is dropped; `trim_behavior="char"` cuts it instead.
        Without `trimming`, the setting of all slots applies; `Stepped` then applies to lists in
        which the assistant speaks, without a tier or volatile, that are trimmed by message. `pool`
        is a smaller budget that several slots have together. `breakpoint` asks the provider to
        cache up to the end of the slot; `changes` says that the slot will be another text in the
        next window, so that nothing is cached from there on. `detail` is a remark for the report.
        `at` is where a text stands among dated messages; `frame` is how it begins and ends (its
        tags), which is never cut. Without `results` and `ladder`, the settings of all slots apply.
        `run` says that the list is the agent's work in this turn, as is a list in which the
        assistant speaks and that is added after the input: its newest calls stay.
        """
        if not isinstance(name, str) or not name.isascii():
            check_text(name, "a slot's name")
        messages, is_made = _messages(name, content, role)
        if at is not None and is_made:
            messages = [replace(as_message(message), at=at) for message in messages]
        # By the kind of the content, not by its text: an empty text is no conversation.
        single = isinstance(content, str | Input | Attachment | Message | Mapping)
        listed = not is_made and content is not None and not single
        if not results == ladder == INHERIT:
            results = self.results if results == INHERIT else results
            ladder = self.ladder if ladder == INHERIT else ladder
            results, ladder = as_shapes(f"slot {name!r}", results, ladder)
        else:
            results, ladder = self.results, self.ladder
        kind: Kind = "text" if is_made else "list"
        if name == "input" or isinstance(content, Input):
            kind = "input"
        elif listed and (self._has_input and is_conversation(messages) if run is None else run):
            kind = "run"
        frame = None if frame is None else _check_frame(name, frame, content)
        may_grow = listed and not isinstance(trimming, Exact)
        slot = Slot(
            name,
            len(self._slots),
            messages,
            kind,
            priority,
            required,
            Size(max_ratio, min_ratio, min_tokens, max_tokens),
            Trim(
                trim_behavior,
                keep,
                marker,
                frame,
                EXACT if trimming is None else trimming,
                results if listed else None,
                ladder if listed else None,
                self.recovery,
            ),
            Place(
                position,
                tier,
                group,
                breakpoint or _lasts(name, role, tier, may_grow),
                breakpoint,
                changes,
            ),
            pool,
            detail,
        )
        inherits = trimming is None and isinstance(self.trimming, Stepped) and slot.may_step
        if inherits and listed and tier in (None, VOLATILE) and name != "system":  # noqa: SIM102
            if kind == "run" or is_conversation(messages):
                slot = replace(slot, trim=replace(slot.trim, trimming=self.trimming))
        self._has_input = self._has_input or slot.kind == "input"
        self._slots.append(check_slot(slot))

    def take(self, slot: Slot) -> None:
        """Add a slot that was made elsewhere. What is said of tools is added by `plan`."""
        if slot.name in ADDED:
            return
        self._has_input = self._has_input or slot.kind == "input"
        place = len(self._slots)
        self._slots.append(slot if slot.index == place else replace(slot, index=place))

    @property
    def declared(self) -> tuple[Slot, ...]:
        """The slots as they were declared."""
        return tuple(self._slots)

    def exclude(self, name: str, *, reason: str, detail: str | None = None) -> None:
        """Record a slot that a condition left out, so that the report can name it."""
        check_text(name, "a slot's name")
        check_text(reason, f"slot {name!r}: reason")
        self._slots.append(Slot(name, len(self._slots), detail=detail, excluded=reason))

    def plan(self) -> Plan:
        """Decide what goes into the window."""
        before = self.previous
        if isinstance(before, Window):
            before = before.lazy_frontier
        law = self.counter.law
        return plan_with_tools(
            Declaration(
                tuple(self._slots),
                self.budget,
                self.counter if before is None else self.counter.with_law(law.after(before.anchor)),
                self.tools,
                self.profile,
                before,
                self.recap,
                self._binds,
            )
        )

    def render(self) -> Window:
        """Compose the window; the same slots always give the same bytes."""
        return self.plan().window()


def _lasts(name: str, role: Role | None, tier: Tier | None, may_grow: bool) -> bool:
    """Say whether a slot's content is expected to stay: by its tier, else if it is system text or
    a conversation, which only grows."""
    if tier is not None and tier != VOLATILE:
        return True
    return may_grow or (tier is None and (name == "system" or role == "system"))


def _messages(name: str, content: Content, role: Role | None) -> tuple[Sequence[MessageLike], bool]:
    """Return the content as messages, and whether they were made here."""
    if role is not None and role not in ROLES:
        raise InvalidInput(
            f"slot {name!r}: unknown role {shown(role)}; use one of {', '.join(ROLES)}"
        )
    made_role = role or ("system" if name == "system" else "user")
    where = f"slot {name!r}: content"
    if content is None:
        return (), False
    if isinstance(content, str):
        if not content.isascii():
            check_text(content, where)
        return ((Message(made_role, content),), True) if content else ((), False)
    if isinstance(content, Input):
        if not content.text and not content.attachments:
            return (), False
        return (Message(made_role, content.text, attachments=content.attachments),), True
    if isinstance(content, Attachment):
        content = [content]
    if isinstance(content, list | tuple) and content and isinstance(content[0], Attachment):
        for number, file in enumerate(content):
            if not isinstance(file, Attachment):
                raise InvalidType(
                    f"{where} begins with an Attachment but holds a {type(file).__name__} at "
                    f"{number}; attachments and messages need slots of their own"
                )
        files = cast("Sequence[Attachment]", content)
        return (Message(made_role, "", attachments=tuple(files)),), True
    if role is not None and content:
        raise InvalidInput(
            f"slot {name!r}: role={role!r} cannot be given with messages, which have roles"
        )
    if isinstance(content, Message):
        return (content,), False
    if isinstance(content, Mapping) or hasattr(content, "model_dump"):
        try:
            return messages_from(content), False
        except InvalidInput as error:
            raise type(error)(f"{where}: {error}") from error
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return cast("Sequence[MessageLike]", content), False
    raise InvalidType(
        f"{where} must be a str, Message, list of messages, Input, Attachment or None, "
        f"not {type(content).__name__}"
    )


def _check_frame(name: str, frame: tuple[str, str], content: Content) -> tuple[str, str]:
    opening, closing = frame
    whole = isinstance(content, str) and len(content) >= len(opening) + len(closing)
    if not (whole and str(content).startswith(opening) and str(content).endswith(closing)):
        raise InvalidInput(f"slot {name!r}: content must be a text that has its frame around it")
    return opening, closing
