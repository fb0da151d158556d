"""One call: contexts under a budget, a tool, and an answer of a given form, repaired once."""

from pydantic import BaseModel

from muntin import ToolCall, context, generate_sync, prompt
from muntin.testing import ScriptedModel


class Offer(BaseModel):
    item: str
    price: float


def stock(item: str) -> int:
    """Look up how many pieces of an item are left.

    Args:
        item: the item's name, in the singular
    """
    return {"pane": 12, "muntin": 3}.get(item, 0)


bot = prompt(
    id="sales",
    system="You sell window parts.",
    prompt="What does a muntin cost, and is there one left?",
    use=[
        context(id="rules", priority=100, system="Prices are in euros, never below 4."),
        context(id="chatter", priority=10, system="Our founder loved windows. " * 20),
    ],
    tools=[stock],
    output=Offer,
)

# In the place of "anthropic/claude-sonnet-4-6": the same, without a key and without a network.
model = ScriptedModel(
    [
        ToolCall("call_1", "stock", '{"item": "muntin"}'),
        '{"item": "muntin", "price": "four euros"}',  # not a number: it will be told
        '```json\n{"item": "muntin", "price": 4.5}\n```',
    ]
)

reply = generate_sync(bot, model=model, token_budget=60, tokenizer="estimate")

for number, window in enumerate(model.windows, 1):
    last = window.messages[-1]
    shown = last.text.splitlines()[0]
    print(f"request {number}: {window.tokens:3} tokens, ends with {last.role}: {shown}")
print(f"\noutput: {reply.output!r}")
print(f"billed: {reply.usage.input} tokens in, {reply.usage.output} out\n")
assert reply.window is not None
print(reply.window.report)
