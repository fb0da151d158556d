"""An agent that is interrupted and goes on: no finished call is run twice."""

import asyncio
from collections.abc import Sequence

from muntin import Message, Slots, Tool, ToolCall, Window
from muntin.agent import ToolLike, run_agent, tool_schema
from muntin.testing import ScriptedModel

booked: list[str] = []
recorded: list[Message] = []  # in life: a file or a table
lights = {"on": True}


def book(city: str) -> str:
    """Book a room."""
    booked.append(city)
    return f"a room in {city}"


async def weather(city: str) -> str:
    """Look up the weather."""
    if city == "Atlantis":
        raise LookupError("no such place")
    return f"grey in {city}, " + "with a chance of rain, " * 50


def record(messages: Sequence[Message]) -> None:
    """Keep what is new, before anything else happens."""
    recorded.extend(messages)
    if booked and lights["on"]:
        lights["on"] = False
        raise OSError("the lights went out")


tools: list[ToolLike] = [book, Tool(weather, timeout=5, max_result_tokens=40)]


def compose(messages: Sequence[Message]) -> Window:
    """Make the window of the next step."""
    slots = Slots(600, tools=[tool_schema(tool) for tool in tools])
    slots.add("system", "You plan journeys.")
    slots.add("input", "A room in Bonn, please. How is the weather?")
    slots.add("run", messages, priority=1)
    return slots.render()


steps = [
    [ToolCall("c1", "book", '{"city": "Bonn"}'), ToolCall("c2", "weather", '{"city": "Atlantis"}')],
    ToolCall("c3", "weather", '{"town": "Bonn"}'),  # a wrong argument: the model is told
    ToolCall("c4", "weather", '{"city": "Bonn"}'),
    "You have a room in Bonn. It will be grey.",
]
try:
    asyncio.run(run_agent(ScriptedModel(steps), compose, tools=tools, record=record))
except OSError as error:
    print(f"-- {error}, after {len(recorded)} messages")

again = run_agent(ScriptedModel(steps[1:]), compose, tools=tools, record=record, resume=recorded)
print(f"answer: {asyncio.run(again).text}\nbooked: {booked}\n")
for message in recorded:
    calls = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    print(f"{message.role:9} | {calls or message.text}")
