"""The run of the current turn: what it shows in the room that it shares with its history."""

from __future__ import annotations

from muntin.core.planning.compact import CUT, LADDER, LEAST, STUB
from muntin.core.planning.draft import Draft, SlotPlan
from muntin.core.planning.levels import Form, Levels, SlotView, lower_summarized, show_at, tokens_at
from muntin.core.planning.limits import fair_shares
from muntin.core.planning.memory import ConversationDraft
from muntin.core.planning.moving import add_notes, levels_before, newest_recap, notes_of, tokens_of
from muntin.core.planning.shrink import compact

# About how many tokens a note about missing calls has.
_NOTE = 32


def show_run(draft: Draft, part: SlotPlan, conversation: ConversationDraft, room: int) -> SlotView:
    """Old results become short, then stubs: first the history's, then the run's. Only if the
    run alone is still too large, its newest results are cut and its oldest calls leave."""
    units = part.reading.units
    lasting, in_turn = levels_before(draft, conversation)
    before = levels = lasting.joined(in_turn)
    begin = conversation.offset(part.slot)
    recap = conversation.recap if lasting.gone >= begin else None
    notes = notes_of(conversation, units, lasting, recap)
    front = tokens_of(notes, draft.counter)
    view = show_at(units, levels)
    history, ceiling = [], None
    if draft.history is not None and draft.history.slot.pool == part.slot.pool:
        history, ceiling = draft.history.reading.units, draft.history.limits.cap
    size, both = tokens_at(history, levels), room
    if ceiling is not None:  # what is above it will not be shown anyway
        both += max(0, size - ceiling)
    taken, low = view.tokens + front, int(conversation.low * both)
    most = low if draft.must_step else both
    if size + taken <= most:
        add_notes(view, notes, room, draft.counter)
        view.recap = recap
        return view
    inner = room - front
    levels, _ = compact(history, levels, most - taken, max(0, low - taken))
    levels, _ = compact([*history, *units], levels, most - front, low, _newest_groups(part))
    view = _with_newest_cut(part, levels, inner)
    if view.tokens > inner:
        newest = [unit for unit in units if unit.is_group][-1:] or units[-1:]
        earlier = [[n] for n, unit in enumerate(units) if unit.position < newest[0].position]
        few = min(room, int(conversation.low * draft.budget) // 2) - _NOTE
        recap = newest_recap(draft, conversation, room)
        inner = room - _NOTE - (0 if recap is None else draft.counter.message(recap.message))
        levels = lower_summarized(units, levels, earlier, few, inner, recap=recap)
        view = _with_newest_cut(part, levels, inner)
    # Levels of this turn alone stay so, unless the run went beyond them.
    raised = zip(levels, before, lasting, strict=True)
    view.lasting = Levels(*[new if new > old else current for new, old, current in raised])
    view.recap = recap if levels.gone >= begin else None
    add_notes(view, notes_of(conversation, units, levels, view.recap), room, draft.counter)
    return view


def run_need(draft: Draft, part: SlotPlan, conversation: ConversationDraft) -> int:
    """Return the tokens of a run whose old results are stubs; half of the window at most."""
    if draft.has_least_run:
        return show_run(draft, part, conversation, 0).tokens
    units = part.reading.units
    levels = conversation.lasting.joined(conversation.in_turn).raised(CUT, units[-1].position + 1)
    groups = [unit for unit in units if unit.is_group]
    older = groups[: max(0, len(groups) - _newest_groups(part))]
    if older:
        levels = levels.raised(STUB, older[-1].position + 1)
    tokens = tokens_at(units, levels)
    half = draft.budget // 2
    return tokens if tokens <= half else show_run(draft, part, conversation, half).tokens


def _newest_groups(part: SlotPlan) -> int:
    return (part.slot.trim.ladder or LADDER).keep_groups


def _with_newest_cut(part: SlotPlan, levels: Levels, room: int) -> SlotView:
    """Cut the results of the newest calls to equal shares of the room, 64 tokens at least."""
    view = show_at(part.reading.units, levels)
    over = view.tokens - room
    groups = [place for place, form in enumerate(view.forms) if form.unit.is_group]
    newest = groups[max(0, len(groups) - max(1, _newest_groups(part))) :]
    cuttable = [
        (place, number)
        for place in newest
        for number, message in enumerate(view.forms[place].messages)
        if message.tool_call_id is not None
    ]
    if over <= 0 or not cuttable:
        return view
    compactor = view.forms[newest[0]].unit.compactor
    sizes = [compactor.content_tokens(view.forms[p].messages[i]) for p, i in cuttable]
    least = [min(size, LEAST) for size in sizes]
    shares = fair_shares(sum(sizes) - over, sizes, [1] * len(sizes), least)
    for (place, number), size, share in zip(cuttable, sizes, shares, strict=True):
        if share >= size:
            continue
        form = view.forms[place]
        messages = list(form.messages)
        whole = form.unit.messages[number]
        messages[number] = compactor.result(whole, share)
        change = compactor.content_tokens(messages[number]) - size
        if change < 0:
            view.forms[place] = Form(form.unit, tuple(messages), form.tokens + change, "short")
            view.tokens += change
    return view
