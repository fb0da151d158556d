// What the reports say in codes, in plain words.

import { num } from "./dom.js";

const REASONS = {
  over_budget: "no room in the budget",
  over_cap: "over its own cap",
  fallback: "the floors did not all fit",
  beyond_fit: "too old to fit",
  orphaned: "its tool call is not in the window",
  moved: "made room for several turns",
  stepped: "made shorter ahead of need, for several turns", // in reports of 0.2
  empty: "nothing in it",
  condition_false: "its condition does not hold",
  source_failed: "its source failed",
  summary: "a summary stands for it",
  duplicate: "already in the window",
};
const LEVELS = { kept: "whole", trimmed: "cut", short: "shortened", stubbed: "as one line", dropped: "dropped", excluded: "left out", empty: "empty" };

export const reason = (code) => REASONS[code] ?? code ?? "";
export const level = (status) => LEVELS[status] ?? status;
export const why = (slot) => [reason(slot.reason), slot.name === "recalled" && slot.detail ? recalled(slot.detail) : slot.detail].filter(Boolean).join(": ");

// What came back, and by which words: "1 (locker, number; 7.8)" is "item 1 for locker, number".
export const RECALLED = /(\d+) \((.*?); ([\d.]+)\)/g;
export const recalled = (detail) => detail.replace(RECALLED, "item $1 for $2").replaceAll("for near a match", "beside a match");

export function nth(number) {
  const teen = number % 100 > 10 && number % 100 < 14;
  return `${num(number)}${teen ? "th" : { 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th"}`;
}

// From which budget on a group is kept whole; of one over its cap, from which cap on. Only reports
// of 0.2 say so. The number is enough for certain: what gives way earlier may make fewer do.
export function fits(each, budget, cap) {
  if (!each.fits_with) return "";
  if (each.reason === "over_cap") return cap === null ? `kept whole if its cap were ${num(each.fits_with)} tokens higher` : `kept whole with a cap of ${num(cap + each.fits_with)} tokens`;
  return `kept from ${num(budget + each.fits_with)} tokens on, if not sooner`;
}

// "would be dropped 7th; kept from 5,413 tokens on, if not sooner"
export function fate(each, budget, cap, planned) {
  const verb = each.status === "dropped" ? "dropped" : each.status === "excluded" ? "left out" : "cut";
  const told = [each.rank ? `${planned ? "would be" : "was"} ${verb} ${nth(each.rank)}` : "", fits(each, budget, cap)];
  return told.filter(Boolean).join("; ");
}
