"""A window with a slot of each fate, and with names that are markup."""

from muntin import Input, Slots, Window, user


def sample() -> Window:
    slots = Slots(100, tokenizer=len, tools=[{"n": 1}])
    slots.add("system", "s" * 20)
    slots.add("history", [user("a" * 25), user("<script>alert(1)</script>12345")])
    slots.add("<b>&", None)
    slots.add("input", Input("i" * 20))
    return slots.render()
