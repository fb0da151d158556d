// The bar: the whole budget, divided into slots; under it what a cache can find again.

import { bdi, colour, dot, h, num, percent } from "./dom.js";

export function panes(report) {
  const found = [{ name: "(tools)", tokens: report.tools_tokens, slot: null }];
  for (const slot of report.slots) {
    found.push({ name: slot.name, tokens: slot.tokens_kept, slot: slot.index });
  }
  found.push({ name: "(joined)", tokens: report.joined_tokens, slot: null });
  found.push({ name: "(lead)", tokens: report.lead_tokens, slot: null });
  found.push({ name: "free", tokens: Math.max(0, report.budget - report.tokens), slot: null });
  return found.filter((pane) => pane.tokens > 0);
}

export function bar(report, { scale = null, small = false, onpick = null } = {}) {
  const all = scale ?? Math.max(report.budget, report.tokens, 1);
  const cells = panes(report).map((pane) => {
    const share = (100 * pane.tokens) / all;
    const said = `${num(pane.tokens)} tokens, ${percent(pane.tokens, report.budget)} of the budget: ${pane.name}`;
    return h(
      onpick && pane.slot !== null ? "button" : "div",
      {
        class: `pane ${pane.name === "free" ? "free" : colour(pane.name)}`,
        title: said,
        "aria-label": said,
        "data-pane": pane.name,
        "data-slot": pane.slot,
        "data-tokens": pane.tokens,
        style: { width: `${share}%` },
        onclick: onpick && pane.slot !== null ? () => onpick(pane.slot) : null,
      },
      !small && share > 7 ? h("span", {}, bdi(pane.name)) : null,
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
  return h("div", { class: small ? "bar small" : "bar" }, cells, over);
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
  const label = `begins like the request before: ${num(tokens)} tokens, ${percent(tokens, report.tokens)}`;
  return h(
    "div",
    { class: "prefix", "data-prefix": tokens },
    tokens
      ? h("div", { class: "reach", style: { width: `${(100 * tokens) / all}%` } })
      : null,
    marks.map((mark) =>
      h("i", {
        class: "mark",
        title: `breakpoint after message ${mark.after}${mark.ttl ? `, kept ${mark.ttl}` : ""}`,
        "data-after": mark.after,
        style: { left: `${(100 * mark.tokens) / all}%` },
      }),
    ),
    h("span", {}, dot(null), label, marks.length ? ` · ${marks.length} breakpoints` : "", read(known)),
  );
}

// What the provider says it read, and how that differs from what is shared.
function read(known) {
  const reported = known?.reported ?? null;
  if (!reported) return "";
  const missing = known.tokens - reported.read;
  const said = ` · the provider read ${num(reported.read)} of ${num(reported.input)} tokens from its cache`;
  if (!known.tokens || Math.abs(missing) <= Math.max(0.05 * known.tokens, 128)) return said;
  return missing > 0
    ? `${said}: ${num(missing)} that are shared were not read`
    : `${said}, ${num(-missing)} more than are shared`;
}
