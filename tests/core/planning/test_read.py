"""How far back slots are read: as far as anything could fit, and no farther."""

from muntin import Message, Slots, Text, ToolCall, assistant, tool, user

LONG = [message for n in range(5_000) for message in (user(f"q{n} " * 9), assistant(f"a{n} " * 9))]


class Counting:
    name = "counting"
    message_overhead = 3

    def __init__(self):
        self.counts = 0

    def count(self, text: str) -> int:
        self.counts += 1
        return len(text)


def render(*contents, budget=8_000, tokenizer=None):
    slots = Slots(budget, tokenizer=tokenizer or Counting())
    for number, content in enumerate(contents):
        slots.add(f"s{number}", content)
    return slots.render()


def counts(*contents):
    tokenizer = Counting()
    render(*contents, tokenizer=tokenizer)
    return tokenizer.counts


CALL = assistant("", tool_calls=[ToolCall("c1", "f", "{}")])


def test_a_pending_call_in_another_slot_does_not_make_the_history_be_read():
    assert counts(LONG, [CALL]) <= counts(LONG) + 4
    assert counts([CALL], LONG) <= counts(LONG) + 4


def test_an_orphan_in_another_slot_does_not_make_the_history_be_read():
    assert counts(LONG, [tool("nobody", "r")]) <= counts(LONG) + 2


def test_the_call_of_a_result_in_a_later_slot_is_found_behind_the_fit():
    history = [CALL, *LONG[-60:]]
    alone = render(history, budget=2_000)
    assert CALL not in alone.messages
    both = render(history, [tool("c1", "r")], budget=2_000)
    assert not any(message.tool_call_id for message in both.messages)  # the group went whole
    assert both.report.slots[1].reason == "over_budget"  # not orphaned: its call was there


def test_the_report_tells_of_the_list_as_it_was_when_rendered():
    history = [user("a"), assistant("b")]
    window = render(history)
    history.append(user("c"))
    assert window.report.slots[0].messages_asked == 2
    history.clear()
    assert window.report.slots[0].messages_kept == 2


def test_parts_without_a_letter_are_nothing():
    window = render([Message("user", (Text(""), Text(""))), user("a")])
    assert window.messages == (user("a"),)
    assert window.report.slots[0].decisions[0].status == "empty"
