// Under a window: what was answered, what it cost, and what the provider said beside the claim.

import { bdi, h, money, num, when } from "./dom.js";

export function answer(told) {
  const { answer: said, usage, cost, claim } = told;
  return h(
    "section",
    { class: "card", "data-answer": said ? "yes" : "none", "aria-label": "The answer" },
    h("h2", {}, "The answer", said?.time ? h("small", { class: "muted" }, when(said.time)) : null),
    said ? text(said) : h("p", { class: "muted" }, "No answer to this window is kept. It is still awaited, or the call failed; what fit() and adapters recorded has the answer when the next request comes."),
    bill(usage, cost, told.model),
    claimed(claim),
  );
}

function text(said) {
  return [
    said.text.text ? h("pre", { class: "said", tabindex: 0, role: "region", "aria-label": "Text of the answer" }, said.text.text, said.text.hidden ? h("em", { class: "muted" }, `… ${num(said.text.hidden)} more characters`) : null) : null,
    said.calls.length ? h("ul", { class: "calls" }, said.calls.map((each) => h("li", { "data-call": true }, bdi(each.words)))) : null,
    said.finish_reason && !["stop", "tool_calls", "end_turn", "tool_use"].includes(said.finish_reason) ? h("p", { class: "warn" }, `It ended early: ${said.finish_reason}.`) : null,
  ];
}

function bill(usage, cost, model) {
  if (!usage) return h("p", { class: "muted", "data-bill": "none" }, "What was billed is not known.");
  const parts = [`${num(usage.input)} in`, usage.cache_read ? `${num(usage.cache_read)} of them from the cache` : null, usage.cache_write ? `${num(usage.cache_write)} written to it` : null, `${num(usage.output)} out`].filter(Boolean);
  const price = cost === null || cost === undefined ? `; the price of ${model ?? "this model"} is not known` : `; ${money(cost)}`;
  return h("p", { "data-bill": usage.input, "data-cost": cost ?? "unknown" }, h("b", {}, "Billed: "), parts.join(", "), price);
}

function agreed({ input, shared, reported }) {
  if (input !== reported.input || (shared !== null && shared !== reported.read)) return "The difference is small.";
  return shared === null ? "Both agree on the input." : "Both agree.";
}

// Two numbers side by side, and one sentence if they differ.
function claimed(claim) {
  if (!claim?.reported) return null;
  const row = (name, ours, theirs) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "n" }, ours === null || ours === undefined ? "not known" : num(ours)), h("td", { class: "n" }, num(theirs)));
  return [
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Claimed and reported" },
      h(
        "table",
        { class: "claim" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "tokens"), h("th", { scope: "col", class: "n" }, "claimed"), h("th", { scope: "col", class: "n" }, "reported"))),
        h("tbody", {}, row("input", claim.input, claim.reported.input), row("from the cache", claim.shared, claim.reported.read)),
      ),
    ),
    claim.differs.length
      ? claim.differs.map((sentence) => h("p", { class: "differs warn", "data-differs": true }, sentence))
      : h("p", { class: "good", "data-differs": "no" }, agreed(claim)),
  ];
}
