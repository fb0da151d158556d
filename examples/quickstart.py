"""Fit a system prompt, a document, a conversation and a question into 120 tokens."""

from muntin import Input, Slots, ToolCall, assistant, tool, user

FARES = "Seat changes are free up to 24 hours before departure, later they cost 20 euros. " * 3
history = [
    user("Hi! I booked the flight to Oslo last week, can you look it up?"),
    assistant("Sure.", tool_calls=[ToolCall("call_1", "find_booking", '{"city": "Oslo"}')]),
    tool("call_1", '{"flight": "SK 4172", "departs": "2024-06-03 09:40", "seat": "14C"}'),
    assistant("Found it: SK 4172 leaves on 3 June at 9:40, you sit in 14C."),
    user("Great. Is there a window seat left?"),
    assistant("Yes, 15A and 22F are free."),
]
slots = Slots(120, tokenizer="openai/gpt-4o")
slots.add("system", "You are an airline agent. Be brief.", priority=100)
slots.add("fares", FARES, max_ratio=0.2, trim_behavior="char", keep="head", priority=5)
slots.add("history", history)
slots.add("input", Input("Take 15A, please. What does it cost?"))
window = slots.render()

print(window.report)
print([message.role for message in window.messages])
