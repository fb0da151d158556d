"""A session that lasts: turns on disk, windows over them, facts that stay, a file to take along."""

from pathlib import Path
from tempfile import TemporaryDirectory

from muntin import Session, Slots, Tokens, ToolCall, Turns, assistant, tool, user
from muntin.timeline import export_session, import_sessions, open_store


def talk(session: Session) -> None:
    """Three turns: one with a tool, one that fails, one that is tried again."""
    with session.turn() as turn:
        turn.append(user("Where is my order 1007?"))
        turn.append(assistant(tool_calls=[ToolCall("c1", "find_order", '{"number": 1007}')]))
        turn.append(tool("c1", "shipped on March 1, with DHL"))
        turn.append(assistant("It was shipped on March 1, with DHL."))
    session.insert_context("address", name="Delivery address", content="12 Elm Street")
    try:
        with session.turn() as turn:
            turn.append(user("Can it come on Friday?"))
            raise TimeoutError("the model did not answer")
    except TimeoutError as error:
        print(f"turn {turn.number} failed: {error}\n")


def show(title: str, session: Session, limit: Turns | Tokens) -> None:
    """Print what the model would see within a limit."""
    print(f"{title}, {limit}:")
    for item in session.items.history(limit):
        tokens = sum(item.tokens.values())
        said = item.message.text or "calls a tool" if item.message else item.payload["content"]
        who = item.role or item.kind
        print(f"  {item.position}  turn {item.turn}  {tokens} tokens  {who}: {said}")
    print()


with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/chat.db") as store:
    talk(Session("support-42", store=store))

    # Another process, another day: all that was appended is there.
    session = Session("support-42", store=store)
    show("A failed turn is shown, so that one can try again", session, Turns(1))
    session.append(user("Please try again."), assistant("Yes, on Friday."))
    show("Once a later turn is completed it is not", session, Tokens(20))

    slots = Slots(200)
    facts = "\n".join(entry.render() for entry in session.list_context())
    slots.add("facts", facts, required=True)
    slots.add("history", session.timeline_messages(entries=False))
    print(slots.render().report)

    file = Path(folder) / "support-42.jsonl"
    with file.open("wb") as out:
        out.writelines(export_session(store, "support-42"))
    with file.open("rb") as lines, open_store("memory:") as other:
        for step in import_sessions(other, lines):
            print(f"{step.items} items in {step.turns} turns went through a file")
        assert other.read("support-42") == store.read("support-42")
