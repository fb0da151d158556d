"""Fit a long conversation with tool calls into 2,000 tokens."""

from muntin import fit

rules = "You are an airline agent. Never promise a refund."
messages: list[dict[str, object]] = [{"role": "system", "content": rules}]
for n in range(40):
    call = {"id": f"c{n}", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages += [
        {"role": "user", "content": f"When does flight {n} leave?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"Flight {n} leaves at 9:40. " * 50},
        {"role": "assistant", "content": f"Flight {n} leaves at 9:40."},
    ]
messages.append({"role": "user", "content": "Book the last one, please."})

fitted = fit(messages, 2_000)
# client.chat.completions.create(model="gpt-5.2", messages=fitted.kept)

print(len(messages), "messages;", len(fitted.kept), "are sent, in", fitted.tokens, "tokens")
for message in [*fitted.kept[:5], fitted.kept[-1]]:
    print(message["role"], "|", message["content"])
