// How much of the past is shown, group by group: whole, shortened, as one line, dropped; the summary
// in front of it and what was recalled.

import { bdi, fill, h, many, num } from "./dom.js";
import { level, RECALLED, recalled as told } from "./words.js";

const ORDER = ["kept", "trimmed", "short", "stubbed", "dropped"];

export function levels(report) {
  const past = report.slots.filter((slot) => slot.decisions.length > 3 || slot.decisions.some((each) => ["short", "stubbed"].includes(each.status) || (each.reason === "summary" && !each.count)));
  const groups = past.flatMap((slot) => slot.decisions.filter((each) => each.count));
  const summary = report.slots.flatMap((slot) => slot.decisions).find((each) => each.reason === "summary" && !each.count);
  const recalled = report.slots.find((slot) => slot.name === "recalled" && slot.tokens_kept);
  return { groups, summary, recalled };
}

export function ladder(report) {
  const { groups, summary, recalled } = levels(report);
  if (groups.every((each) => each.status === "kept") && !summary && !recalled) return null;
  const counts = ORDER.map((name) => [name, groups.filter((each) => each.status === name).length]).filter(([, count]) => count);
  const said = counts.map(([name, count]) => `${num(count)} ${level(name)}`).join(", ");
  return h(
    "div",
    { class: "ladder" },
    h(
      "div",
      { class: "groups", role: "img", "aria-label": `The past in ${many(groups.length, "group")}, the oldest first: ${said}${summary ? "; a summary in front" : ""}${recalled ? "; excerpts recalled" : ""}` },
      summary ? h("i", { class: "summary", title: `a summary of ${num(summary.tokens_kept)} tokens` }) : null,
      groups.map((each) => h("i", { class: each.status, "data-level-cell": each.status, title: `${many(each.count, "message")}: ${level(each.status)}, ${num(each.tokens_kept)} of ${num(each.tokens_asked)} tokens` })),
      recalled ? h("i", { class: "recalled", title: `recalled: ${num(recalled.tokens_kept)} tokens` }) : null,
    ),
    h(
      "ul",
      { class: "legend" },
      h("li", { class: "muted" }, "The past, the oldest first:"),
      summary ? h("li", { "data-level": "summary" }, h("i", { class: "dot summary" }), `a summary of ${num(summary.tokens_kept)} tokens in front`) : null,
      counts.map(([name, count]) => h("li", { "data-level": name }, h("i", { class: `dot ${name}` }), `${num(count)} ${level(name)}`)),
      recalled ? h("li", { "data-level": "recalled" }, h("i", { class: "dot recalled" }), `recalled: ${num(recalled.tokens_kept)} tokens`) : null,
    ),
    recalled ? excerpts(recalled.detail ?? "") : null,
  );
}

// Which turns came back, and by which words.
function excerpts(detail) {
  const [chosen, next] = detail.split("; next: ");
  const found = [...chosen.matchAll(RECALLED)];
  if (!found.length) return null;
  const list = h("ul", { class: "recalls" });
  fill(list, found.slice(0, 12).map(([, at, words]) => h("li", { "data-recalled": at }, h("b", {}, `item ${num(Number(at))}`), words === "near a match" ? " beside a match" : [" for ", bdi(words)])), found.length > 12 ? h("li", {}, `and ${num(found.length - 12)} more`) : null, next ? h("li", { class: "muted" }, "next in line: ", bdi(told(next))) : null);
  return list;
}
