// The bar: the whole budget, divided into slots; under it what a cache can find again.

import { bdi, colour, dot, groupOf, h, many, num, percent, providerTokens } from "./dom.js";

// With more slots than these, those of one name are one pane.
const MANY = 12;

export function panes(report) {
  const found = [{ name: "(tools)", tokens: report.tools_tokens, slot: null }];
  const groups = new Map();
  const together = report.slots.length > MANY;
  for (const slot of report.slots) {
    const name = together ? groupOf(slot.name) : slot.name;
    const known = together ? groups.get(name) : null;
    if (known) {
      known.tokens += slot.tokens_kept;
      known.slots += 1;
    } else {
      const pane = { name, tokens: slot.tokens_kept, slot: slot.index, slots: 1 };
      groups.set(name, pane);
      found.push(pane);
    }
  }
  found.push({ name: "(joined)", tokens: report.joined_tokens, slot: null });
  found.push({ name: "(lead)", tokens: report.lead_tokens, slot: null });
  found.push({ name: "(answer)", tokens: report.answer_tokens, slot: null });
  found.push({ name: "(provider)", tokens: providerTokens(report), slot: null });
  found.push({ name: "free", tokens: Math.max(0, report.budget - report.tokens), slot: null });
  return found.filter((pane) => pane.tokens > 0);
}

export function bar(report, { scale = null, small = false, onpick = null } = {}) {
  const all = scale ?? Math.max(report.budget, report.tokens, 1);
  const cells = panes(report).map((pane) => {
    const share = (100 * pane.tokens) / all;
    const of = pane.slots > 1 ? ` (${many(pane.slots, "slot")})` : "";
    const said = `${pane.name}${of} ${num(pane.tokens)} tokens, ${percent(pane.tokens, report.budget)} of the budget`;
    const opens = onpick && pane.slot !== null;
    return h(
      opens ? "button" : "div",
      {
        class: `pane ${pane.name === "free" ? "free" : colour(pane.name)}`,
        title: said,
        role: opens || small ? null : "img",
        "aria-label": small ? null : said,
        "data-slots": pane.slots > 1 ? pane.slots : null,
        "data-pane": pane.name,
        "data-slot": pane.slot,
        "data-tokens": pane.tokens,
        style: { width: `${share}%` },
        onclick: opens ? () => onpick(pane.slot) : null,
      },
      !small && share > 7 ? h("span", {}, bdi(pane.name), pane.slots > 1 ? ` (${many(pane.slots, "slot")})` : null) : null,
      " ",
      !small && share > 7 ? h("span", { class: "n" }, num(pane.tokens)) : null,
    );
  });
  const over = report.tokens > report.budget && !small
    ? h("i", {
        class: "limit",
        title: `the budget: ${num(report.budget)} tokens`,
        style: { left: `${(100 * report.budget) / all}%` },
      })
    : null;
  return h("div", { class: small ? "bar small" : "bar", "aria-hidden": small ? "true" : null }, cells, over);
}

export function legend(report) {
  return h(
    "ul",
    { class: "legend" },
    panes(report).map((pane) =>
      h(
        "li",
        {},
        h("i", { class: `dot ${pane.name === "free" ? "free" : colour(pane.name)}` }),
        bdi(pane.name),
        pane.slots > 1 ? h("span", { class: "muted" }, `\u00a0×${num(pane.slots)}`) : null,
        h("b", {}, num(pane.tokens)),
      ),
    ),
  );
}

// What the request shares with the one before it, as the report says, else as the windows show.
export function prefix(report, marks, shared) {
  const all = Math.max(report.budget, report.tokens, 1);
  const known = report.prefix ?? null;
  const tokens = known ? known.tokens : shared?.shared_tokens ?? null;
  if (tokens === null && !marks.length) return null;
  const said = alike(tokens, report, known !== null, shared);
  return h(
    "div",
    { class: marks.length ? "prefix marked" : "prefix", "data-prefix": tokens },
    h("div", { class: "reach", style: { width: `${(100 * (tokens ?? 0)) / all}%` } }),
    marks.map((mark) =>
      h("i", {
        class: "mark",
        title: `breakpoint after message ${mark.after}${mark.ttl ? `, kept ${mark.ttl}` : ""}`,
        "data-after": mark.after,
        style: { left: `${(100 * mark.tokens) / all}%` },
      }),
    ),
    h("span", {}, dot(null), said, marks.length ? `; ${many(marks.length, "breakpoint")}` : "", read(known)),
  );
}

function alike(tokens, report, cached, shared) {
  if (shared && shared.shared_tokens === null && !tokens) return "No request before this one is known";
  if (tokens === null) return "What it shares with the request before is not known";
  const first = (count) => `The first ${num(count)} tokens (${percent(count, report.tokens)}) are the same as in the request before`;
  if (tokens) return `${first(tokens)}${cached ? ": a cache can read them" : ""}`;
  if (cached && shared?.shared_tokens) return `${first(shared.shared_tokens)}, but a cache can read none of them`;
  return "Nothing at its beginning is the same as in the request before";
}

// What the provider says it read of them; the card of the answer has both numbers.
function read(known) {
  const reported = known?.reported ?? null;
  return reported ? `; the provider read ${num(reported.read)}.` : ".";
}
