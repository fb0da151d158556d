"""What every request says about tools, and what a search loads."""

from __future__ import annotations

import json

import pytest

from muntin import InvalidInput, Message, Tool, Toolbox, ToolCall, ToolSearch, assistant
from muntin.agent.tools import as_tools
from muntin.core.counting.counter import Counter
from muntin.core.tool_marks import found_names, found_tools
from muntin.core.toolboxes.finding import answer_search, target, with_marks, wrapped
from muntin.core.toolboxes.offer import ToolOffer
from muntin.errors import InvalidType
from tests.toolboxes import boxes, toolboxes

COUNTER = Counter()


def find_order(id: str) -> str:
    """Find an order by its id."""
    return id


def search(id: str, query: str) -> ToolCall:
    return ToolCall(id, "find_tools", json.dumps({"query": query}))


def offer(budget: int, search: ToolSearch | None = ToolSearch(), **options) -> ToolOffer:  # noqa: B008
    tools = as_tools([find_order, *options.pop("boxes", toolboxes())], "test")
    options = {"loading": "text", **options}
    offered = tools.offer_now("test", budget=budget, counter=COUNTER, search=search, **options)
    assert isinstance(offered.schemas, ToolOffer)
    return offered.schemas


def named(offered: ToolOffer) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in offered]


@pytest.mark.parametrize(
    ("budget", "rung"),
    [(1_500, "titles"), (4_000, "boxes"), (8_000, "names"), (32_000, "lines"), (64_000, "lines")],
)
def test_the_fullest_index_that_fits_is_sent(budget, rung):
    offered = offer(budget)
    assert offered.is_search
    assert offered.rung == rung
    assert COUNTER.text(offered.index_text) <= budget // 10
    assert named(offered) == ["call_tool", "find_order", "find_tools"]


def test_without_room_there_is_no_index_and_tools_are_found_all_the_same():
    offered = offer(300)
    assert (offered.rung, offered.index_text) == ("none", "")
    call = search("1", "convert_to_pdf")
    assert found_names([answer_search(call, offered, COUNTER)]) == ["convert_to_pdf"]
    nothing = answer_search(search("2", "zzz"), offered, COUNTER)
    assert nothing.text.endswith(
        f"The toolboxes are: {', '.join(sorted(b['name'] for b in boxes()))}."
    )


def test_all_tools_are_declared_while_they_fit():
    offered = offer(200_000)
    assert not offered.is_search
    assert offered.index_text == ""
    assert named(offered) == sorted(
        [*(t["name"] for b in boxes() for t in b["tools"]), "find_order"]
    )


def test_the_ceiling_holds_for_large_budgets():
    assert (offer(1_000_000, ToolSearch(most_tokens=2_000))).is_search
    assert not (offer(1_000_000)).is_search


def test_without_search_all_tools_are_declared():
    assert len(offer(1_000, None)) == 97


def test_pinned_tools_are_always_declared():
    word = next(box for box in toolboxes() if box.name == "word")
    pinned = Toolbox("word", word.tools, pinned=["read_document"])
    offered = offer(4_000, boxes=[pinned])
    assert named(offered) == ["call_tool", "find_order", "find_tools", "read_document"]
    assert "read_document" not in offered.index_text


def test_the_offer_is_the_same_for_the_same_declaration():
    one, other = offer(32_000), offer(32_000, boxes=toolboxes())
    assert list(one) == list(other)
    assert one.index_text == other.index_text


def test_a_search_loads_at_most_eight_tools_in_an_eighth_of_the_budget():
    call = search("1", "file")
    offered = offer(32_000)
    result = answer_search(call, offered, COUNTER)
    assert len(found_tools(result)) == 8
    small = offer(1_600)
    loaded = found_tools(answer_search(call, small, COUNTER))
    plain = [{k: v for k, v in tool.items() if k != "rung"} for tool in loaded]
    assert sum(COUNTER.text(json.dumps(tool)) for tool in plain) <= 1.5 * 1_600 / 8


@pytest.mark.parametrize(("budget", "rung"), [(16_000, "full"), (2_000, "lean"), (400, "brief")])
def test_an_exact_name_is_always_loaded_with_all_its_structure(budget, rung):
    offered = offer(budget)
    call = search("1", "edit_text_file_contents")
    (tool,) = found_tools(answer_search(call, offered, COUNTER))
    assert tool["rung"] == rung
    patches = tool["parameters"]["properties"]["files"]["items"]["properties"]["patches"]
    assert list(patches["items"]["properties"]) == [
        "line_start", "line_end", "contents", "range_hash",
    ]  # fmt: skip
    assert patches["items"]["required"] == ["line_start", "contents", "range_hash"]


def test_a_tool_in_the_window_is_named_and_not_loaded_again():
    offered = offer(32_000)
    first = answer_search(search("1", "create_document"), offered, COUNTER)
    answer = assistant(tool_calls=[search("2", "create_document")])
    marked = with_marks(answer, offered, [first])
    again = answer_search(marked.tool_calls[0], offered, COUNTER)
    assert again.text == "Loaded before: create_document"
    assert not found_tools(again)


def test_the_same_search_is_answered_from_the_first_one():
    offered = offer(32_000)
    run = [assistant(tool_calls=[search("1", "read the weather")])]
    first = answer_search(run[0].tool_calls[0], offered, COUNTER)
    run.append(first)
    again = assistant(tool_calls=[search("2", "Read the weather ")])
    call = with_marks(again, offered, run).tool_calls[0]
    result = answer_search(call, offered, COUNTER, run)
    assert result.text == f"Loaded before: {', '.join(found_names([first]))}"


def test_a_call_of_call_tool_means_the_tool_itself():
    offered = offer(32_000)
    texts = [
        ('{"name":"forecast","arguments":{"place":"Oslo"}}', '{"place":"Oslo"}'),
        ('{"name":"forecast","arguments":"{\\"place\\": \\"Oslo\\"}"}', '{"place":"Oslo"}'),
        ('{"name":"forecast"}', "{}"),
    ]
    for text, arguments in texts:
        call = target(ToolCall("1", "call_tool", text), offered)
        assert (call.id, call.name, call.arguments) == ("1", "forecast", arguments)
        assert call.extra == {"toolbox": {"box": "weather"}}
    sent = wrapped(target(ToolCall("1", "call_tool", texts[0][0]), offered))
    assert (sent.name, sent.arguments) == ("call_tool", texts[0][0])


def test_calls_of_declared_tools_are_not_marked():
    offered = offer(32_000)
    call = ToolCall("1", "call_tool", '{"name":"find_order","arguments":{"id":"7"}}')
    assert target(call, offered) == ToolCall("1", "find_order", '{"id":"7"}')


def test_wrong_toolboxes_are_refused_by_name():
    with pytest.raises(InvalidInput, match="toolbox 'a': pinned names 'x'"):
        Toolbox("a", [find_order], pinned=["x"])
    with pytest.raises(InvalidInput, match="a toolbox holds tools, not other toolboxes"):
        Toolbox("a", [Toolbox("b", [find_order])])
    with pytest.raises(InvalidInput, match="two toolboxes have the name 'a'"):
        as_tools([Toolbox("a", []), Toolbox("a", [])], "conversation")
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        ToolSearch(share=2)
    with pytest.raises(InvalidType, match="must be an int"):
        ToolSearch(most_tokens="many")  # type: ignore[arg-type]


def test_one_name_in_two_places_is_an_error_that_names_both():
    with pytest.raises(InvalidInput, match=r"toolbox 'a' and toolbox 'b'.*prefix=\"b_\""):
        offer(9_000, boxes=[Toolbox("a", [Tool(find_order, name="x")]),
                                  Toolbox("b", [Tool(find_order, name="x")])])  # fmt: skip
    with pytest.raises(InvalidInput, match="own list and toolbox 'a'"):
        offer(9_000, boxes=[Toolbox("a", [find_order])])
    offered = offer(9_000, boxes=[Toolbox("a", [find_order], prefix="a_")])
    assert named(offered) == ["a_find_order", "find_order"]


def test_the_names_of_the_search_are_reserved_while_tools_are_searched():
    mine = Toolbox("mine", [Tool(find_order, name="find_tools")])
    with pytest.raises(InvalidInput, match="a tool is called 'find_tools'"):
        offer(4_000, boxes=[*toolboxes(), mine])
    assert "find_tools" in named(offer(4_000, None, boxes=[mine]))


def test_a_toolbox_may_be_a_function_that_is_asked_each_time():
    tools = [find_order]
    box = Toolbox("a", lambda: tools, prefix="a_")
    assert "a_find_order" in named(offer(9_000, boxes=[box]))
    tools.append(Tool(find_order, name="later"))  # type: ignore[arg-type]
    assert "a_later" in named(offer(9_000, boxes=[box]))


def test_a_toolbox_that_is_asked_by_an_async_function_is_refused_where_nothing_can_wait():
    async def listing():
        return [find_order]

    with pytest.raises(InvalidInput, match=r"toolbox 'a': .* async function"):
        offer(9_000, boxes=[Toolbox("a", listing)])


def test_a_result_that_loads_tools_is_a_message_like_any_other():
    message = Message("tool", "Loaded", tool_call_id="1", extra={"found_tools": [{"name": "a"}]})
    assert Message.from_dict(message.to_dict()) == message
