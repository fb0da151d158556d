"""A chatbot that never outgrows its window: each turn is composed anew, and the bill is shown."""

from muntin import History, Input, Message, Slots, assistant, user


def model(messages: tuple[Message, ...]) -> str:
    """Stand in for a real model."""
    return f"I can see {len(messages)} messages; you said: {messages[-1].text.strip('!?. ')}."


def on_context_build(slots: Slots, history: History, said: Input) -> None:
    """Declare what may go into the window; the planner does the rest."""
    slots.add("system", "You are a helpful assistant.", role="system", priority=100)
    slots.add("history", history.recent(10), trim_behavior="message", max_ratio=0.5)
    slots.add("input", said)


talk: list[Message] = []
for text in ["Hello!", "How are you?", "Tell me about muntins.", "And panes?", "Thanks!"]:
    slots = Slots(90, tokenizer="openai/gpt-4o")
    on_context_build(slots, History(talk), Input(text))
    window = slots.render()
    reply = model(window.messages)
    history = next(slot for slot in window.report.slots if slot.name == "history")
    kept = f"{history.messages_kept} of {history.messages_asked}"
    print(f"{window.tokens:3} tokens, {kept:7} messages of history | {text} -> {reply}")
    talk += [user(text), assistant(reply)]
