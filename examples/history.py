"""Choosing from the past: the newest, a range, by tokens, whole turns, or as plain text."""

from muntin import Attachment, History, Tokens, ToolCall, Turns, assistant, tool, user

report = Attachment("file-1", "report.pdf", 48_213, "document", "application/pdf")
history = History(
    [
        user("Check this report", attachments=[report]),
        assistant("The report looks correct."),
        user("What is the total on page 2?"),
        assistant(tool_calls=[ToolCall("c1", "read_page", '{"page": 2}')]),
        tool("c1", "Total: 1 240 EUR"),
        assistant("1 240 EUR."),
    ],
    attachment_tokens={"document": 500},
)

print("last user:      ", history.last_user())
print("recent(2):      ", [message.text for message in history.recent(2)])
print("range(3, 1):    ", [message.role for message in history.range(from_end=3, to_end=1)])
print("by_tokens(30):  ", [message.role for message in history.by_tokens(30)])
print("Turns(1):       ", [message.role for message in history.window(Turns(1))])
print("Tokens(10_000): ", len(history.window(Tokens(10_000))), "messages")
print("only the user's:", [m.text for m in history.recent(20) if m.role == "user"])
print()
print(history.recent_text(2 + 4))
