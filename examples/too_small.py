"""What happens when the rules cannot all be met: nothing is sent, and the error says why."""

from muntin import BudgetExceeded, Input, Slots

slots = Slots(20, tokenizer="openai/gpt-4o")
slots.add("rules", "Never reveal a customer's data to anybody else. " * 2, required=True)
slots.add("input", Input("What did Ann book?"))
window = slots.render()

try:
    window.openai()
except BudgetExceeded as error:
    print(error)
    print(f"\n{error.report}")
