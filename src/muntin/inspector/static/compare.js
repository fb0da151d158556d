// Turn to turn: how a window differs from another, and where their beginnings part.

import { ask } from "./api.js";
import { bar, legend } from "./bar.js";
import { bdi, dot, fill, h, many, money, num, percent } from "./dom.js";

export class CompareView {
  constructor(main, go) {
    this.main = main;
    this.go = go;
  }

  async show({ session, turn, step, other }, windows) {
    const place = windows.findIndex((each) => each.turn === turn && each.step === step);
    const before = windows.slice(0, place).concat(windows.slice(place + 1));
    const chosen = before.find((each) => other && each.turn === other.turn && each.step === other.step) ?? windows[place - 1];
    const head = h("header", { class: "head" }, h("h1", {}, `Turn ${num(turn)}, step ${step} against`, " ", this.choice(before, chosen, { session, turn, step })));
    if (!chosen) {
      fill(this.main, head, h("p", { class: "note" }, "No window before this one is kept."));
      return;
    }
    const told = await ask("difference", { session, turn, step, other_turn: chosen.turn, other_step: chosen.step }, "difference");
    const now = windows[place];
    const scale = Math.max(now.budget, now.tokens, chosen.budget, chosen.tokens);
    fill(
      this.main,
      head,
      h(
        "section",
        { class: "card" },
        h("p", { class: "figures" }, h("b", { class: "big", "data-shared": told.shared_tokens }, percent(told.shared_tokens, told.tokens)), h("span", { class: "muted" }, ` of this window begins like the other: ${many(told.shared_messages, "message")}, ${num(told.shared_tokens)} tokens`)),
        h("div", { class: "pair" }, h("span", { class: "muted" }, `turn ${chosen.turn}.${chosen.step}`), bar(chosen, { scale }), h("span", { class: "muted" }, `turn ${turn}.${step}`), bar(now, { scale })),
        h("div", { class: "prefix", "data-prefix": told.shared_tokens }, h("div", { class: "reach", style: { width: `${(100 * told.shared_tokens) / scale}%` } }), h("span", {}, "the same in both, from the beginning")),
        legend(now),
        this.parted(told),
      ),
      h("section", { class: "card" }, h("h2", {}, "Slots"), this.slots(told)),
      h("div", { class: "two" }, this.lines("Came", "came", told.came), this.lines("Went", "went", told.went)),
    );
  }

  choice(before, chosen, which) {
    return h(
      "select",
      { id: "other", "aria-label": "the other window", onchange: (event) => {
        const [turn, step] = event.target.value.split(".").map(Number);
        this.go.to({ ...which, view: "compare", other: { turn, step } });
      } },
      before.slice().reverse().map((each) => h("option", { value: `${each.turn}.${each.step}`, selected: each === chosen }, `turn ${each.turn}, step ${each.step}`)),
    );
  }

  parted(told) {
    const { parted, price } = told;
    if (!parted) {
      return h("p", { class: "good", "data-parted": "none" }, "The other window is the beginning of this one: a cache finds all of it again.");
    }
    const lost = price ? (Math.min(told.other_tokens, told.tokens) - told.shared_tokens) * (price.input - price.read) / 1e6 : null;
    return h(
      "div",
      { class: "parted", "data-parted": parted.message, "data-by": parted.name },
      h("p", {}, "They part at ", h("b", {}, `message ${num(parted.message)}`), ", moved by ", dot(parted.name), h("b", {}, parted.name), `: ${parted.how}.`, lost > 0 ? h("span", { class: "muted" }, ` What could not be read from a cache costs up to ${money(lost)} more.`) : null),
      parted.was
        ? h("div", { class: "two" },
            h("div", { class: "excerpt" }, h("small", { class: "muted" }, `there was (${parted.was.role})`), h("pre", {}, parted.was.text, parted.was.hidden ? "…" : "")),
            h("div", { class: "excerpt" }, h("small", { class: "muted" }, parted.now ? `there is (${parted.now.role})` : "there is nothing"), parted.now ? h("pre", {}, parted.now.text, parted.now.hidden ? "…" : "") : null))
        : null,
      told.prefix?.moved ? h("p", { class: "muted" }, `The report says: slot ${told.prefix.moved.slot} (${told.prefix.moved.reason}), ${num(told.prefix.moved.tokens)} tokens less than expected are shared.`) : null,
    );
  }

  slots(told) {
    const most = Math.max(1, ...told.slots.map((slot) => Math.abs((slot.now ?? 0) - (slot.before ?? 0))));
    return h(
      "table",
      { class: "slots" },
      h("thead", {}, h("tr", {}, ["slot", "before", "now", "change", ""].map((name, n) => h("th", { class: n && n < 4 ? "n" : null, scope: "col" }, name)))),
      h("tbody", {}, told.slots.map((slot) => {
        const change = (slot.now ?? 0) - (slot.before ?? 0);
        return h(
          "tr",
          { "data-name": slot.name },
          h("td", {}, dot(slot.name), h("b", {}, slot.name), slot.status !== slot.status_before ? h("small", { class: "muted" }, `${slot.status_before ?? "not there"} → ${slot.status ?? "not there"}`) : null),
          h("td", { class: "n", "data-cell": "before" }, num(slot.before)),
          h("td", { class: "n", "data-cell": "now" }, num(slot.now)),
          h("td", { class: "n" }, change ? `${change > 0 ? "+" : "−"}${num(Math.abs(change))}` : ""),
          h("td", { class: "delta" }, change ? h("i", { class: change > 0 ? "more" : "less", style: { width: `${(50 * Math.abs(change)) / most}%` } }) : null),
        );
      })),
    );
  }

  lines(title, name, found) {
    return h(
      "section",
      { class: "card", "data-change": name, "data-count": found.count },
      h("h2", {}, `${title} `, h("span", { class: "muted" }, num(found.count))),
      found.count ? h("ul", { class: "lines" }, found.lines.map((line) => h("li", {}, dot(line.name), h("span", { class: "muted" }, bdi(line.name), ` · ${line.role} `), bdi(line.text), line.hidden ? "…" : ""))) : h("p", { class: "muted" }, "nothing"),
      found.count > found.lines.length ? h("p", { class: "muted" }, `and ${num(found.count - found.lines.length)} more`) : null,
    );
  }
}
