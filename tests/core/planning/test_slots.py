"""What may be declared, what it becomes, and that a wrong declaration is an error naming it."""

import pickle
import warnings
from dataclasses import asdict, replace

import pytest

from muntin import (
    Attachment,
    Budget,
    BudgetExceeded,
    Exact,
    Group,
    Image,
    Input,
    InvalidInput,
    Message,
    Reasoning,
    Slots,
    Stepped,
    Text,
    ToolCall,
    assistant,
    system,
    tool,
    user,
)
from muntin.core.report import Moved, NotCarried, Prefix
from muntin.errors import InvalidType

PHOTO = Attachment("1", "p.png", 1, "image")


def window_of(content, budget=1_000, name="x", **options):
    slots = Slots(budget, tokenizer=len, attachment_tokens={"image": 100})
    slots.add(name, content, **options)
    return slots.render()


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("x", "hi", {}, [user("hi")]),
        ("x", "hi", {"role": "assistant"}, [assistant("hi")]),
        ("x", "hi", {"role": "tool"}, [Message("tool", "hi")]),
        ("system", "hi", {}, [system("hi")]),
        ("system", "hi", {"role": "user"}, [user("hi")]),
        ("x", user("hi"), {}, [user("hi")]),
        ("x", {"role": "user", "content": "hi"}, {}, [user("hi")]),
        ("x", [user("a"), {"role": "assistant", "content": "b"}], {}, [user("a"), assistant("b")]),
        ("x", (user("a"),), {}, [user("a")]),
        ("x", Input("hi", (PHOTO,)), {}, [user("hi", attachments=[PHOTO])]),
        ("x", PHOTO, {}, [user("", attachments=[PHOTO])]),
        ("x", [PHOTO, PHOTO], {}, [user("", attachments=[PHOTO, PHOTO])]),
    ],
)
def test_content_becomes_messages(name, content, options, expected):
    assert list(window_of(content, name=name, **options).messages) == expected


@pytest.mark.parametrize("content", [None, "", [], (), Input(""), user(""), Message("user")])
def test_nothing_adds_nothing(content):
    window = window_of(content)
    assert window.messages == ()
    assert [slot.status for slot in window.report.slots] == ["empty"]
    assert window.tokens == 0
    assert not window.over_budget


def test_an_empty_message_in_a_list_is_left_out_but_an_empty_result_is_not():
    call = assistant("", tool_calls=[ToolCall("c", "f", "{}")])
    window = window_of([user("a"), assistant(""), call, tool("c", "")])
    assert list(window.messages) == [user("a"), call, tool("c", "")]


def test_slots_stand_by_position_then_by_order_of_add():
    slots = Slots(100, tokenizer=len)
    slots.add("c", "c")
    slots.add("d", "d")
    slots.add("b", "b", position=2)
    slots.add("a", "a", position=-1)
    slots.add("b2", "B", position=2)
    assert [message.text for message in slots.render().messages] == ["a", "b", "B", "c", "d"]


def test_tiers_stand_before_positions():
    slots = Slots(100, tokenizer=len)
    slots.add("v", "v", tier="volatile", position=0)
    slots.add("n", "n", position=1)
    slots.add("w", "w", tier="slow-changing")
    slots.add("s", "s", tier="stable")
    slots.add("p", "p", tier="pinned", position=9)
    assert "".join(message.text for message in slots.render().messages) == "pswvn"


def test_two_slots_may_share_a_name_and_the_report_tells_them_apart():
    slots = Slots(100, tokenizer=len)
    slots.add("x", "one")
    slots.add("x", "two", position=0)
    report = slots.render().report
    assert [(slot.name, slot.index) for slot in report.slots] == [("x", 1), ("x", 0)]


def test_render_is_repeatable_and_add_may_follow():
    slots = Slots(100, tokenizer=len)
    slots.add("a", "a")
    first = slots.render()
    assert slots.render() == first
    slots.add("b", "b")
    assert len(slots.render().messages) == 2
    assert len(first.messages) == 1


def test_the_seeds_strategy_works_as_written():
    slots = Slots(Budget(40), tokenizer=len)
    history = [user("question one"), assistant("answer one"), user("two"), assistant("answer two")]
    slots.add("system", "You help.", role="system", priority=100)
    slots.add("history", history, trim_behavior="message", max_ratio=0.5)
    slots.add("input", Input("and now?"))
    assert [message.text for message in slots.render().messages] == [
        "You help.",
        "two",
        "answer two",
        "and now?",
    ]


def test_an_excluded_slot_is_in_the_report_with_its_reason():
    slots = Slots(100, tokenizer=len)
    slots.exclude("research", reason="condition_false", detail="when=has_research")
    slots.add("a", "a")
    first = slots.render().report.slots[0]
    assert (first.name, first.status, first.reason) == ("research", "excluded", "condition_false")
    assert first.detail == "when=has_research"


BAD = [
    ({"max_ratio": 1.1}, "slot 'x': max_ratio must be from 0 to 1, got 1.1"),
    ({"max_ratio": -0.1}, "slot 'x': max_ratio"),
    ({"max_ratio": float("nan")}, "slot 'x': max_ratio must be from 0 to 1, got nan"),
    ({"max_ratio": "half"}, "slot 'x': max_ratio must be a number"),
    ({"max_ratio": True}, "slot 'x': max_ratio must be a number"),
    ({"min_ratio": 2}, "slot 'x': min_ratio"),
    ({"min_ratio": float("inf")}, "slot 'x': min_ratio"),
    ({"min_tokens": -1}, "slot 'x': min_tokens must not be negative"),
    ({"min_tokens": 1.0}, "slot 'x': min_tokens must be an int"),
    ({"max_tokens": -1}, "slot 'x': max_tokens must not be negative"),
    ({"max_tokens": 5, "min_tokens": 6}, "slot 'x': max_tokens=5 is below min_tokens=6"),
    ({"priority": 1.5}, "slot 'x': priority must be an int"),
    ({"priority": None}, "slot 'x': priority must be an int"),
    ({"position": "first"}, "slot 'x': position must be an int"),
    ({"role": "robot"}, "slot 'x': unknown role 'robot'"),
    ({"trim_behavior": "word"}, "slot 'x': trim_behavior must be"),
    ({"tier": "hot"}, "slot 'x': tier must be"),
    ({"keep": "middle"}, "slot 'x': keep must be"),
    ({"required": 1}, "slot 'x': required must be"),
    ({"group": "g"}, "slot 'x': group must be a Group"),
    ({"marker": "cut"}, "slot 'x': marker must be a callable"),
    ({"group": Group("g", join="\n"), "min_tokens": 1}, "slot 'x': min_tokens does not apply"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_a_bad_option_is_an_error_naming_slot_and_option(options, words):
    with pytest.raises(InvalidInput, match=words):
        Slots(100).add("x", "text", **options)


def test_a_floor_above_the_ceiling_is_clamped_as_the_seed_says():
    window = window_of("x" * 80, budget=100, min_ratio=0.9, max_ratio=0.5, trim_behavior="char")
    assert window.tokens == 50


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (5, "slot 'x': content must be a str"),
        (b"bytes", "slot 'x': content must be a str"),
        ("a\ud800", "slot 'x': content has a lone surrogate"),
        ([user("a"), 5], "slot 'x', message 1: a message must be a Message or a dict"),
        ([{"role": "robot", "content": "x"}], "slot 'x', message 0: unknown role 'robot'"),
        ([{"role": "user", "content": "\udc00"}], "slot 'x', message 0: .* lone surrogate"),
        ([PHOTO, user("a")], "holds a Message"),
    ],
)
def test_bad_content_is_an_error_naming_slot_and_message(content, words):
    with pytest.raises(InvalidInput, match=words):
        window_of(content)


def test_a_role_with_real_messages_is_an_error():
    for content in (user("a"), [user("a")], {"role": "user", "content": "a"}):
        with pytest.raises(InvalidInput, match="slot 'x': role='system' cannot be given"):
            Slots(100).add("x", content, role="system")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": "f"}, "tools must be a list"),
        ({"tools": {"name": "f"}}, "tools must be a list"),
        ({"tools": [5]}, r"tools\[0\] must be a mapping"),
        ({"tools": [{"f": {1, 2}}]}, r"tools\[0\] cannot be written as JSON"),
        ({"tools": [{"f": [float("nan")]}]}, r"tools\[0\] cannot be written as JSON: it holds nan"),
        ({"trimming": "exact"}, r"trimming must be Exact\(\)"),
        ({"previous": 5}, "previous must be a Window"),
        ({"profile": 5}, "a model must be a str"),
    ],
)
def test_a_bad_option_of_slots_is_named(options, words):
    with pytest.raises(InvalidInput, match=words):
        Slots(100, **options)


def calls(*ids):
    return assistant("", tool_calls=[ToolCall(call_id, "f", "{}") for call_id in ids])


@pytest.mark.parametrize(
    ("contents", "shown"),
    [
        ([[calls("c"), calls("c"), tool("c", "r")]], 3),
        ([[calls("c"), tool("c", "r"), tool("c", "s")]], 2),
        ([[calls("c")], [calls("c")]], 2),
        ([[calls("c")], [calls("c")], [tool("c", "r")], [tool("c", "s")]], 4),
    ],
)
def test_ids_may_repeat_and_a_result_without_a_call_of_its_own_is_left_out(contents, shown):
    slots = Slots(1_000, tokenizer=len)
    for number, content in enumerate(contents):
        slots.add(f"s{number}", content)
    assert list(slots.render().messages) == [m for each in contents for m in each][:shown]


def test_an_id_may_be_used_again_once_it_was_answered_as_real_traffic_does():
    talk = [calls("c"), tool("c", "1"), user("again"), calls("c"), tool("c", "2")]
    assert list(window_of(talk).messages) == talk


THOUGHT = Message("assistant", (Reasoning("r" * 10, signature="signed"),))


@pytest.mark.parametrize(("budget", "kept"), [(40, 4), (34, 3), (33, 1), (14, 1), (4, 1)])
def test_reasoning_lives_and_dies_with_the_message_it_led_to(budget, kept):
    talk = [user("q" * 5), THOUGHT, assistant("a" * 20), user("n" * 4)]
    assert list(window_of(talk, budget=budget).messages) == talk[4 - kept :]


def test_reasoning_before_tool_calls_belongs_to_their_group():
    talk = [THOUGHT, calls("c"), tool("c", "r" * 5), user("n")]
    assert list(window_of(talk, budget=19).messages) == talk
    assert list(window_of(talk, budget=18).messages) == talk[3:]


def test_reasoning_is_never_cut_but_the_text_beside_it_is():
    message = Message("assistant", (Reasoning("r" * 10), Text("t" * 20)))
    window = window_of([message], budget=15, trim_behavior="char")
    assert window.messages[0].content == (Reasoning("r" * 10), Text("t" * 5))
    assert window_of([message], budget=10, trim_behavior="char").messages == ()


def test_text_parts_are_cut_from_the_front_or_from_the_end():
    image = Image("https://x/y.png", width=32, height=32, detail="low")
    message = Message("user", (Text("a" * 5), image, Text("b" * 5)))
    whole = window_of([message]).tokens
    tail = window_of([message], budget=whole - 7, trim_behavior="char").messages[0]
    head = window_of([message], budget=whole - 7, trim_behavior="char", keep="head").messages[0]
    assert tail.content == (image, Text("bbb"))
    assert head.content == (Text("aaa"), image)


def test_what_may_not_be_dropped_and_does_not_fit_is_flagged_and_not_sent():
    slots = Slots(30, tokenizer=len)
    slots.add("rules", "r" * 40, required=True)
    slots.add("history", [user("h" * 5)])
    slots.add("input", Input("i" * 9))
    window = slots.render()
    assert window.over_budget
    assert [message.text[0] for message in window.messages] == ["r", "i"]
    assert window.messages[-1].text == "i" * 9  # the input stays whole
    with pytest.raises(BudgetExceeded, match=r"needs 49 .*only 30.*'rules' 40, 'input' 9\.") as e:
        window.openai()
    assert (e.value.needed, e.value.available, e.value.report) == (49, 30, window.report)
    assert pickle.loads(pickle.dumps(e.value)).needed == 49
    assert len(window.openai(strict=False)["messages"]) == 2


def test_tools_that_leave_no_room_are_over_budget():
    slots = Slots(10, tokenizer=len, tools=[{"name": "f" * 50}])
    slots.add("history", [user("h" * 5)])
    window = slots.render()
    assert window.over_budget
    assert window.messages == ()
    with pytest.raises(BudgetExceeded, match="could not shrink further: the tools"):
        window.openai()


def test_a_window_can_be_compared_and_pickled():
    window = window_of([user("a"), user("b" * 2_000)])
    again = pickle.loads(pickle.dumps(window))
    assert again == window
    assert again.report == window.report


def test_a_provider_that_wants_a_user_first_gets_a_counted_lead():
    slots = Slots(100, tokenizer=len, profile="anthropic/claude-sonnet-4-5")
    slots.add("system", "s" * 10)
    slots.add("history", [user("a" * 60), assistant("b" * 40)])
    window = slots.render()
    lead = len("(earlier messages omitted)")
    assert [message.text[0] for message in window.messages] == ["s", "b"]
    assert window.tokens == 10 + 40 + lead
    assert window.report.lead_tokens == lead


def test_room_for_the_lead_is_made_when_there_is_none():
    slots = Slots(60, tokenizer=len, profile="google/gemini-2.5-pro")
    slots.add("history", [user("a" * 60), assistant("b" * 30), assistant("c" * 20)])
    window = slots.render()
    assert [message.text[0] for message in window.messages] == ["c"]
    assert window.tokens <= 60
    assert not window.over_budget


def test_exact_is_the_trimming_of_slots():
    assert Slots(1).trimming == Exact()


def test_tools_are_sent_as_they_were_counted():
    parameters = {"a": "x"}
    schema = {"name": "f", "parameters": parameters}
    slots = Slots(1_000, tokenizer=len, tools=[schema])
    parameters["b"] = "y" * 100
    assert slots.render().tools == ({"name": "f", "parameters": {"a": "x"}},)


def test_tools_nested_too_deeply_are_refused_by_number():
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(InvalidInput, match=r"tools\[1\] cannot be written as JSON: .* too deeply"):
        Slots(10, tools=[{}, deep])


def test_attachments_mixed_with_messages_are_refused_naming_the_slot():
    with pytest.raises(InvalidInput, match=r"slot 'x': content begins .* holds a Message at 1"):
        window_of([PHOTO, user("a")])


def test_slots_show_themselves_briefly():
    slots = Slots(Budget(100, reserved_tokens=10), tokenizer=len)
    slots.add("x", "hi")
    assert repr(slots) == "<Slots tokens=90 tokenizer='len' slots=1>"


def test_a_slot_of_the_report_is_found_by_its_name():
    slots = Slots(100)
    slots.add("rules", "Be brief.")
    slots.add("history", [user("hi")])
    window = slots.render()
    assert window.report["history"] is window.report.slots[1]
    with pytest.raises(InvalidInput, match="no slot 'rule'; its slots: 'rules', 'history'"):
        window.report["rule"]


def test_a_report_as_a_dict_is_what_dataclasses_would_write():
    slots = Slots(60, profile="openai/gpt-5", trimming=Stepped())
    slots.add("rules", "Be brief.", tier="pinned")
    slots.add("history", [user(f"{n}: how far is the moon?") for n in range(20)])
    first = slots.render()
    slots.previous = first
    report = replace(
        slots.render().report, not_carried=(NotCarried("openai", 1, "a file", "too large"),)
    )
    moved = replace(report, prefix=Prefix("h", 1, 0.5, Moved(1, "history", "moved", 7), ("x",)))
    for told in (moved, report, replace(report, prefix=None)):
        data = asdict(told)
        assert data.pop("tools") == ()  # written only where there are toolboxes
        data["tokens"] = told.tokens
        for slot in data["slots"]:
            slot["decisions"] = tuple(decision._asdict() for decision in slot["decisions"])
        assert told.to_dict() == data


def talked(trimming: Stepped, turns: int = 30) -> list[tuple[Message, ...]]:
    """Return the messages of every window of a conversation."""
    window, shown = None, []
    for turn in range(turns):
        slots = Slots(1_000, tokenizer=len, trimming=trimming, previous=window)
        slots.add("history", [user("u" * 30), assistant("a" * 30)] * turn)
        slots.add("input", "i" * 30)
        window = slots.render()
        shown.append(window.messages)
    return shown


@pytest.mark.parametrize(("retain", "low"), [(0.75, 0.5), (0.8, 0.6), (0.5, 0.0), (0.2, 0.0)])
def test_retain_is_deprecated_and_read_as_a_low_mark(retain, low):
    with pytest.warns(DeprecationWarning, match="use low=") as told:
        trimming = Stepped(retain=retain)
    assert told[0].filename == __file__  # it names the line that is to be changed
    assert trimming.low_mark == pytest.approx(low)
    assert talked(trimming) == talked(Stepped(low=low))


def test_low_is_no_news_and_wins_over_retain():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Stepped().low_mark == 0.5
        assert Stepped(low=0.7).low_mark == 0.7
        assert talked(Stepped()) == talked(Stepped(low=0.5)) != talked(Stepped(low=0.7))
    with pytest.warns(DeprecationWarning, match="use low="):
        assert Stepped(low=0.7, retain=0.9).low_mark == 0.7


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"low": 1}, InvalidInput),
        ({"low": -0.1}, InvalidInput),
        ({"low": float("nan")}, InvalidInput),
        ({"low": "0.5"}, InvalidType),
        ({"low": True}, InvalidType),
        ({"retain": 1.1}, InvalidInput),
        ({"retain": "x"}, InvalidType),
    ],
)
def test_a_low_mark_out_of_range_is_an_error(options, error):
    with pytest.raises(error, match=r"^Stepped\.(low|retain) must be "):
        Stepped(**options)
