"""The planner: decides what goes into a window, in one pass.

Priority decides what is in the window. The frontier decides only when a conversation moves inside
the room that priority gives it.

1. Read. Slots become units: messages that live and die together (`units`).
2. Need. Each slot is asked what it could use of its floor; that much is set aside for it.
3. Serve. Slots take room, from the best protected to the least protected: each as much as it can
   use of what the needs of the others leave. What it cannot use flows on (`serving`).
4. Move. A conversation that has outgrown its room moves far enough not to move again soon: large
   texts are cut, old results become short, then stubs, then the oldest turns leave (`moving`,
   `running`). It remembers how far (`memory`). Under `Exact()` it goes only as far as it must, and
   remembers nothing.
5. Lay out, in the author's order.

Every step asks a pure function what a slot would show in a room (`shrink`, `levels`); nothing is
tried and taken back. docs/design/planner.md has the rules and the reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from muntin.core.compaction import newest_compaction
from muntin.core.counting.counter import Counter
from muntin.core.message import Message, role_of
from muntin.core.planning.draft import Draft, SlotPlan
from muntin.core.planning.levels import NO_LEVELS, number_turns, show_whole
from muntin.core.planning.limits import Limits, limits
from muntin.core.planning.memory import (
    ConversationDraft,
    ConversationState,
    find_conversations,
    is_conversation,
)
from muntin.core.planning.moving import tokens_beside
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.render import opens_with_user
from muntin.core.planning.serving import serve
from muntin.core.planning.slot import EXACT, TIERS, Group, Slot, in_full
from muntin.core.planning.units import (
    Reading,
    check_joined,
    find_repeats,
    is_blank,
    link,
    read_slot,
)
from muntin.core.profile import OMITTED, Profile
from muntin.core.standing import standing_places
from muntin.errors import NeedsConversation

_ROUNDS = 4
# How a window follows the one before where thoughts are bound: nothing is known of that one, it is
# the beginning of this one, or it is not.
Past: TypeAlias = Literal["new", "goes on", "moves"]


def plan_window(declared: Declaration) -> Plan:
    """Decide what goes into the window."""
    try:
        return _plan_following(declared) if declared.proves else _plan(declared)
    except NeedsConversation:  # one message means several: read such lists whole
        slots = tuple(in_full(slot) for slot in declared.slots)
        return plan_window(replace(declared, slots=slots))


def _plan_following(declared: Declaration) -> Plan:
    """Plan where it matters whether all that was sent stays.

    If it does, texts for earlier turns stay too. If it does not, thoughts that are bound to it
    leave, and the conversation steps down at once so that it does not move again.
    """
    before = declared.before
    if before is None or before.sent is None:
        return _plan(declared, "new")
    plan = _plan(declared)
    is_whole = all(text is not None for _, text in before.cleared)
    if is_whole and plan.frontier.goes_on_from(before.sent):
        return replace(plan, cleared=before.cleared) if before.cleared else plan
    return replace(_plan(declared, "moves"), moved_from=plan) if declared.is_bound else plan


def _plan(declared: Declaration, past: Past = "goes on") -> Plan:
    counter, profile = declared.counter, declared.profile
    tools, has_tools = counter.tools(declared.tools), declared.has_tools
    given = declared.budget.remaining_input_tokens
    budget = max(0, given - counter.beside(declared.tools))
    most = counter.law.room(given, has_tools) - tools - counter.answer
    slots = _begin_at_summary(_split_question(_in_window_order(declared.slots)), profile)
    slots = [_with_standing(slot) for slot in slots]
    conversations = find_conversations(slots, declared.before.starts if declared.before else ())
    if past != "goes on":
        for conversation in conversations:
            conversation.thoughts = None
    readings = _read(slots, conversations, declared, budget)
    room = most = max(0, min(budget, most))
    for _ in range(_ROUNDS):
        draft = _begin(readings, conversations, declared, budget, room)
        draft.must_step = past == "moves"
        serve(draft)
        joined = _close(draft, conversations)
        total = joined + sum([part.view.tokens for part in draft.ranked])
        lead = 0
        if profile is not None and profile.user_first and not opens_with_user(draft.parts):
            lead = counter.message(OMITTED)
        over, used = total + lead - most, draft.used
        if over <= 0 or used > room or room == 0:
            break
        # A joined text may have a token more than its parts, and a lead needs room.
        room = max(0, used - over)
    answer = counter.answer if total + lead else 0  # an empty request has no answer
    return Plan(
        declared,
        tuple(draft.parts),
        tuple(
            [
                _remember(draft, conversation, declared.is_bound)
                for conversation in conversations
                if conversation.is_stepped or declared.is_bound
            ]
        )
        or _remember_size(slots, declared),
        total + lead + tools + answer,
        lead,
        tools,
        answer,
        joined,
        draft.fallback,
    )


def _in_window_order(slots: Sequence[Slot]) -> list[Slot]:
    """Order slots by tier, then position (none: after all that have one), then as they were added.
    System text that was added before all else keeps the head, whatever the others ask for."""
    is_tiered = any(slot.place.tier for slot in slots)
    head = 0
    while head < len(slots) and _keeps_head(slots[head]):
        head += 1

    def key(slot: Slot) -> tuple[bool, int, bool, int, int]:
        place = slot.place
        tier = TIERS.index(place.tier or "volatile") if is_tiered else 0
        is_head = slot.index < head
        return not is_head, tier, place.position is None, place.position or 0, slot.index

    return sorted(slots, key=key)


def _keeps_head(slot: Slot) -> bool:
    place = slot.place
    if place.tier is not None or place.position is not None or slot.kind not in ("text", "list"):
        return False
    return all(role_of(message) == "system" for message in slot.messages)


def _split_question(slots: list[Slot]) -> list[Slot]:
    """Where no slot is the current input, and a conversation ends with the question of this turn
    and the work done since: take it apart, so that both are protected."""
    if any(slot.kind == "input" and slot.messages for slot in slots):
        return slots
    place = next(
        (n for n in reversed(range(len(slots))) if slots[n].is_stepped and slots[n].messages), None
    )
    if place is None or slots[place].kind == "run":
        return slots
    slot = slots[place]
    messages = slot.messages
    run = len(messages)
    while run and role_of(messages[run - 1]) in ("assistant", "tool"):
        run -= 1
    start = run
    while start and role_of(messages[start - 1]) == "user":
        start -= 1
    if start == run or role_of(messages[-1]) not in ("user", "tool"):
        return slots
    if run < len(messages) and role_of(messages[run]) == "tool":  # of a call before the question
        return slots
    plain = replace(slot.trim, trimming=EXACT, marker=None)
    parts = [replace(slot, messages=messages[:start])]
    parts.append(replace(slot, messages=messages[start:run], kind="input", trim=plain))
    if run < len(messages):
        parts.append(replace(slot, messages=messages[run:], kind="run"))
    return [*slots[:place], *parts, *slots[place + 1 :]]


def _begin_at_summary(slots: list[Slot], profile: Profile | None) -> list[Slot]:
    """Let a conversation begin at the newest summary that its provider wrote: what stands before it
    is not read any more."""
    for place in range(len(slots) - 1, -1, -1):
        slot = slots[place]
        summary = None if slot.kind == "text" else newest_compaction(slot.messages, profile)
        if summary is not None:
            before = [
                replace(slot, begin=len(slot.messages)) if _is_spoken(slot) else slot
                for slot in slots[:place]
            ]
            return [*before, replace(slot, begin=summary), *slots[place + 1 :]]
    return slots


def _with_standing(slot: Slot) -> Slot:
    """Return a slot that knows its messages with a standing effect."""
    places = standing_places(slot.messages) if slot.kind in ("list", "run") else ()
    places = tuple([place for place in places if place >= (slot.begin or 0)])
    return replace(slot, standing=places) if places else slot


def _is_spoken(slot: Slot) -> bool:
    """Say whether a slot is part of a conversation."""
    if slot.kind == "list":
        return slot.may_step and is_conversation(slot.messages)
    return slot.kind in ("input", "run")


# Reading.


def _read(
    slots: Sequence[Slot],
    conversations: Sequence[ConversationDraft],
    declared: Declaration,
    budget: int,
) -> list[Reading]:
    """Read what the window may need of every slot."""
    counter = declared.counter
    begins = {
        id(slot): max(0, conversation.lasting.gone - conversation.offset(slot))
        for conversation in conversations
        for slot in conversation.slots
        if slot.is_stepped
    }
    bares = dict[int, int]()  # thoughts are sent only if they came since the conversation moved
    if declared.is_bound:
        bares = {
            id(slot): max(0, conversation.thoughts - conversation.offset(slot))
            for conversation in conversations
            if conversation.thoughts is not None
            for slot in conversation.slots
        }
    all_bare = sys.maxsize if declared.is_bound else 0
    readings = []
    for slot in slots:
        most = slot.size.max_tokens
        limit = sys.maxsize
        # A run is read whole: a line says which of its calls are not shown.
        if slot.kind not in ("input", "run") and not slot.required:
            pool = budget if slot.pool is None else slot.pool.tokens
            limit = min(budget, pool, budget if most is None else most)
            limit = max(limit, _limits(slot, budget).floor)
        begin, bare = begins.get(id(slot), 0), bares.get(id(slot), all_bare)
        readings.append(read_slot(slot, limit, counter, budget, begin, bare=bare))
    link(readings, counter)
    check_joined(readings, counter)
    by_slot = {id(reading.slot): reading for reading in readings}
    for conversation in conversations:
        offset = turn = 0
        for slot in conversation.slots:
            turn = number_turns(by_slot[id(slot)].units, offset, turn)
            offset += len(slot.messages)
        members = [by_slot[id(slot)].units for slot in conversation.slots]
        find_repeats(unit for units in members for unit in units)
    return readings


def _limits(slot: Slot, budget: int) -> Limits:
    size = slot.size
    return limits(budget, size.max_ratio, size.min_ratio, size.min_tokens, size.max_tokens)


def _begin(
    readings: Sequence[Reading],
    conversations: Sequence[ConversationDraft],
    declared: Declaration,
    budget: int,
    room: int,
) -> Draft:
    """Begin a window of what was read."""
    conversation_of = {id(slot): talk for talk in conversations for slot in talk.slots}
    parts = list[SlotPlan]()
    offsets: dict[int, int] = {}  # parts of one declared slot stand one behind the other
    for reading in readings:
        slot = reading.slot
        offset = offsets.get(slot.index, 0)
        offsets[slot.index] = offset + len(slot.messages)
        conversation = conversation_of.get(id(slot))
        parts.append(SlotPlan(slot, reading, _limits(slot, budget), conversation, offset))
    _protect(parts)
    recap = declared.recap
    begins = [unit.place for reading in readings for unit in reading.units if unit.begins]
    if begins:  # the provider's summary tells what a summary from before it told
        recap = None if recap is None or recap.place <= begins[0] else recap
        for conversation in conversations:
            if conversation.recap is not None and conversation.recap.place <= begins[0]:
                conversation.recap = None
    main = conversations[-1] if conversations else None
    members = {part.slot.kind: part for part in parts if main and part.conversation is main}
    run = members.get("run")
    draft = Draft(
        budget,
        room,
        declared.counter,
        recap,
        bool(declared.tools) or run is not None,
        parts,
        conversation=main,
        history=members.get("list"),
        input=next((part for part in reversed(parts) if part.slot.kind == "input"), None),
        run=run,
    )
    filled = [(_protection(draft, part), n) for n, part in enumerate(parts) if part.reading.units]
    draft.ranked = [parts[n] for _, n in sorted(filled, reverse=True)]
    for order, part in enumerate(reversed(draft.ranked)):
        part.order = order
    return draft


def _protect(parts: Sequence[SlotPlan]) -> None:
    """Mark the units that nothing may drop."""
    is_calm = all(part.slot.priority == 0 or is_blank(part.reading) for part in parts)
    has_required = any(part.slot.required for part in parts)
    for part in parts:
        slot, reading = part.slot, part.reading
        protects_system = is_calm and not slot.is_joined
        part.stands = slot.required
        if not (slot.required or protects_system or (has_required and reading.is_scattered)):
            continue
        for unit in reading.units:
            unit.is_protected = (
                slot.required
                or (protects_system and unit.is_system)
                or any(other.required for other, _ in unit.elsewhere)
            )
        part.stands = all(unit.is_protected for unit in reading.units)


def _protection(draft: Draft, part: SlotPlan) -> tuple[int, int, int]:
    """Return how well a slot is protected: slots are served from the highest to the lowest, and the
    later before the earlier one."""
    slot = part.slot
    if slot.required:
        return 2, 0, 0
    if slot.kind == "input" and slot.priority == 0:
        return 1, 0, 0
    if part is draft.run:  # one conversation with its history, and newer
        return 0, slot.priority if draft.history is None else draft.history.slot.priority, 1
    return 0, slot.priority, 2 if all(unit.is_system for unit in part.reading.units) else 0


# The window, and what is remembered.


def _close(draft: Draft, conversations: Sequence[ConversationDraft]) -> int:
    """Complete the plans of the slots; return what joining texts adds to the sum of their parts."""
    input_part = draft.input
    if input_part is not None and input_part.reading.units and draft.used > draft.room:
        input_part.view = show_whole(input_part.reading.units)  # cutting it was in vain
    elsewhere = _results_elsewhere(draft.parts)
    for conversation in conversations:
        conversation.after = conversation.lasting, conversation.in_turn
    for part in draft.parts:
        part.elsewhere = tuple(elsewhere.get(id(part.slot), ()))
        view = part.view
        if part.conversation is not None and part.conversation.after is not None:
            lasting, in_turn = part.conversation.after
            part.conversation.after = (
                lasting.joined(view.lasting or NO_LEVELS),
                in_turn.joined(view.in_turn or NO_LEVELS),
            )
    return _joined_tokens(draft.parts, draft.counter)


def _results_elsewhere(
    parts: Sequence[SlotPlan],
) -> dict[int, list[tuple[int, Message | None]]]:
    """Return the results that stand in other slots than their calls: by the id of the slot, with
    their places; None for a result that was dropped with its call."""
    results: dict[int, list[tuple[int, Message | None]]] = {}
    for part in parts:
        if not part.reading.is_scattered:
            continue
        forms = {id(form.unit): form for form in part.view.forms}
        for unit in part.reading.units:
            form = forms.get(id(unit)) if unit.elsewhere else None
            for number, (slot, index) in enumerate(unit.elsewhere, len(unit.indices)):
                message = None if form is None else form.messages[number]
                results.setdefault(id(slot), []).append((index, message))
    return results


def _joined_tokens(parts: Sequence[SlotPlan], counter: Counter) -> int:
    """Return what joining adds to the sum of the parts: frames, separators, merged tokens."""
    joined: dict[Group, list[SlotPlan]] = {}
    for part in parts:
        group = part.slot.place.group
        if group is not None and group.join is not None:
            joined.setdefault(group, []).append(part)
    added = 0
    for group, members in joined.items():
        texts = [form.messages[0].text for part in members for form in part.view.forms]
        if texts:
            whole = counter.overhead + counter.text((group.join or "").join(texts))
            added += whole - sum([part.view.tokens for part in members])
    return added


def _remember_size(slots: Sequence[Slot], declared: Declaration) -> tuple[ConversationState, ...]:
    """Return the size of a conversation that remembers nothing else: thoughts come after it."""
    if not declared.is_bound:
        return ()
    lists = [slot for slot in slots if slot.kind == "list" and slot.may_step]
    spoken = [slot for slot in lists if is_conversation(slot.messages)][-1:]
    spoken += [slot for slot in slots if slot.kind == "input"][-1:]
    size = sum([len(slot.messages) for slot in spoken])
    return (ConversationState("input", thoughts=size),)


def _remember(draft: Draft, conversation: ConversationDraft, is_bound: bool) -> ConversationState:
    """Return what the next window must know of a conversation of this one."""
    members = [part for slot in conversation.slots for part in draft.parts if part.slot is slot]
    units = [unit for part in members for unit in part.reading.units]
    head = members[0]
    assert conversation.after is not None
    lasting, in_turn = conversation.after
    room, recap = None, conversation.recap
    if head.slot.kind == "list" and head.open_room is not None:
        room = max(0, head.open_room + tokens_beside(draft, head))
        recap = recap if head.view.lasting is None else head.view.recap
    recap = next((part.view.recap for part in members if part.view.recap is not None), recap)
    after = replace(
        conversation,
        lasting=lasting,
        in_turn=in_turn,
        recap=recap,
        missing=tuple(sorted(conversation.calls_gone(units, lasting).items())),
        input_tokens=conversation.input_tokens if conversation.is_same_turn else None,
    )
    input_part = draft.input
    if (
        conversation is draft.conversation
        and input_part
        and any(f.status == "trimmed" for f in input_part.view.forms)
    ):
        after.input_tokens = input_part.view.tokens
    return after.start(room, is_bound=is_bound)
