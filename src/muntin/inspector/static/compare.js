// How a window differs from another, of its session or of another one, and where they part.

import { ask } from "./api.js";
import { bar, legend } from "./bar.js";
import { bdi, dot, fill, h, many, money, num, percent } from "./dom.js";
import { level } from "./words.js";

export class CompareView {
  constructor(main, go) {
    this.main = main;
    this.go = go;
  }

  async show({ session, turn, step, other }, windows) {
    const which = { session, turn, step };
    this.which = which;
    const apart = other?.session && other.session !== session;
    const theirs = apart ? await this.windowsOf(other.session) : windows;
    const place = windows.findIndex((each) => each.turn === turn && each.step === step);
    const choices = apart ? theirs : theirs.slice(0, place).concat(theirs.slice(place + 1));
    const named = choices.find((each) => other && each.turn === other.turn && each.step === other.step);
    const chosen = named ?? (apart ? this.alike(theirs, windows, place) : windows[place - 1]);
    const head = h("header", { class: "head" }, h("h1", {}, `Turn ${num(turn)}, step ${step} against`), h("p", { class: "against" }, this.sessions(which, apart ? other.session : session), this.choice(choices, chosen, which, apart ? other.session : null)));
    if (!chosen) {
      fill(this.main, head, h("p", { class: "note" }, apart ? "No window of that session is kept." : "No window before this one is kept."));
      return;
    }
    const same = () => this.go.view() === "compare" && this.which === which;
    if (!same()) return;
    const told = await ask("difference", { ...which, other_turn: chosen.turn, other_step: chosen.step, other_session: apart ? other.session : null }, "difference");
    const totals = apart ? await this.totals(session, windows, other.session, theirs) : null;
    if (!same()) return;
    const now = windows[place];
    const scale = Math.max(now.budget, now.tokens, chosen.budget, chosen.tokens);
    const name = (each, id) => (apart ? `${id} ${each.turn}.${each.step}` : `turn ${each.turn}.${each.step}`);
    fill(
      this.main,
      head,
      totals,
      h(
        "section",
        { class: "card", "aria-label": "How much is the same" },
        h("p", { class: "figures" }, h("b", { class: "big", "data-shared": told.shared_tokens }, percent(told.shared_tokens, told.tokens)), h("span", { class: "muted" }, ` of this window begins like the other: ${many(told.shared_messages, "message")}, ${num(told.shared_tokens)} tokens`)),
        h("div", { class: "pair" }, h("span", { class: "muted" }, bdi(name(chosen, told.other_session))), bar(chosen, { scale }), h("span", { class: "muted" }, bdi(name(now, session))), bar(now, { scale }), h("span", {}), h("div", { class: "prefix", "data-prefix": told.shared_tokens }, h("div", { class: "reach", style: { width: `${(100 * told.shared_tokens) / scale}%` } }), h("span", {}, told.shared_tokens ? "the same in both, from the beginning" : "nothing is the same in both at the beginning"))),
        legend(now),
        this.parted(told),
      ),
      h("section", { class: "card", "aria-label": "Slots" }, h("h2", {}, "Slots"), this.slots(told, apart)),
      h("div", { class: "two" }, this.lines(apart ? "Only here" : "Came", "came", told.came), this.lines(apart ? "Only there" : "Went", "went", told.went)),
    );
  }

  // The window of the other session that stands where this one does.
  alike(theirs, windows, place) {
    const { turn, step } = windows[place];
    const same = theirs.filter((each) => each.turn === turn);
    return same.find((each) => each.step === step) ?? same.at(-1) ?? theirs.at(-1);
  }

  async windowsOf(session) {
    if (this.known?.session !== session) {
      const info = await ask("turns", { session, count: 0 }, "others");
      let windows = [];
      for (let first = 1; first <= info.turns && first <= 1000; first += 100) windows = windows.concat((await ask("turns", { session, first }, "others")).windows);
      this.known = { session, windows };
    }
    return this.known.windows;
  }

  // Both sessions as a whole, side by side.
  async totals(session, windows, other, theirs) {
    const [mine, yours] = await Promise.all([ask("usage", { session }), ask("usage", { session: other })]);
    const sum = (some) => some.reduce((all, each) => all + each.tokens, 0);
    const repeats = (some) => some.filter((each) => each.repeats).length;
    const billed = (used) => used.answers.input + used.summaries.input;
    const rows = [
      ["windows", theirs.length, windows.length],
      ["turns", new Set(theirs.map((each) => each.turn)).size, new Set(windows.map((each) => each.turn)).size],
      ["tokens sent", sum(theirs), sum(windows)],
      ["largest window", Math.max(0, ...theirs.map((each) => each.tokens)), Math.max(0, ...windows.map((each) => each.tokens))],
      ["input billed", billed(yours), billed(mine)],
      ["of it from the cache", yours.answers.cache_read, mine.answers.cache_read],
      ["output billed", yours.answers.output + yours.summaries.output, mine.answers.output + mine.summaries.output],
      ["steps that repeat", repeats(theirs), repeats(windows)],
    ];
    return h(
      "section",
      { class: "card", "data-sessions": true, "aria-label": "Both sessions" },
      h("h2", {}, "Both sessions"),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Both sessions, a table" },
        h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col", class: "n" }, bdi(other)), h("th", { scope: "col", class: "n" }, bdi(session)))),
          h("tbody", {}, rows.map(([name, was, now]) => h("tr", { "data-total": name }, h("th", { scope: "row" }, name), h("td", { class: "n" }, num(was)), h("td", { class: "n" }, num(now))))))),
    );
  }

  sessions(which, chosen) {
    const known = this.go.sessions().filter(Boolean).map((each) => each.id);
    const names = [...new Set([which.session, chosen, ...known])];
    return h(
      "select",
      { id: "other-session", "aria-label": "the other session", onchange: (event) => this.go.to({ ...which, view: "compare", other: event.target.value === which.session ? null : { session: event.target.value, turn: 0, step: 0 } }) },
      names.map((name) => h("option", { value: name, selected: name === chosen }, name === which.session ? `${name} (this one)` : name)),
    );
  }

  choice(before, chosen, which, session) {
    return h(
      "select",
      { id: "other", "aria-label": "the other window", onchange: (event) => {
        const [turn, step] = event.target.value.split(".").map(Number);
        this.go.to({ ...which, view: "compare", other: { session, turn, step } });
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
      h("p", {}, "They part ", h("b", {}, parted.name === "(tools)" ? "before the first message" : `at message ${num(parted.message)}`), ", moved by ", dot(parted.name), h("b", {}, parted.name), `: ${parted.how}.`, lost > 0 ? h("span", { class: "muted" }, ` What could not be read from a cache costs up to ${money(lost)} more.`) : null),
      parted.was
        ? h("div", { class: "two" },
            h("div", { class: "excerpt" }, h("small", { class: "muted" }, `there was (${parted.was.role})`), h("pre", { tabindex: 0 }, parted.was.text, parted.was.hidden ? "…" : "")),
            h("div", { class: "excerpt" }, h("small", { class: "muted" }, parted.now ? `there is (${parted.now.role})` : "there is nothing"), parted.now ? h("pre", { tabindex: 0 }, parted.now.text, parted.now.hidden ? "…" : "") : null))
        : null,
      told.prefix?.moved ? h("p", { class: "muted" }, `The report says: slot ${told.prefix.moved.slot} changed, and ${num(told.prefix.moved.tokens)} tokens fewer than expected are the same.`) : null,
    );
  }

  // One window after the other, or one of another session: there and here.
  slots(told, apart) {
    const columns = apart ? ["slot", "there", "here", "change"] : ["slot", "before", "now", "change"];
    const most = Math.max(1, ...told.slots.map((slot) => Math.abs((slot.now ?? 0) - (slot.before ?? 0))));
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Slots, a table" }, h(
      "table",
      { class: "slots" },
      h("thead", {}, h("tr", {}, columns.map((name, n) => h("th", { class: n ? "n" : null, scope: "col" }, name)), h("td", {}))),
      h("tbody", {}, told.slots.map((slot) => {
        const change = (slot.now ?? 0) - (slot.before ?? 0);
        return h(
          "tr",
          { "data-name": slot.name },
          h("td", {}, dot(slot.name), h("b", {}, slot.name), slot.status !== slot.status_before ? h("small", { class: "muted" }, `${slot.status_before ? level(slot.status_before) : "not there"} → ${slot.status ? level(slot.status) : "not there"}`) : null),
          h("td", { class: "n", "data-cell": "before" }, num(slot.before)),
          h("td", { class: "n", "data-cell": "now" }, num(slot.now)),
          h("td", { class: "n" }, change ? `${change > 0 ? "+" : "−"}${num(Math.abs(change))}` : ""),
          h("td", { class: "delta" }, change ? h("i", { class: change > 0 ? "more" : "less", style: { width: `${(50 * Math.abs(change)) / most}%` } }) : null),
        );
      })),
    ));
  }

  lines(title, name, found) {
    return h(
      "section",
      { class: "card", "data-change": name, "data-count": found.count },
      h("h2", {}, `${title} `, h("span", { class: "muted" }, num(found.count))),
      found.count ? h("ul", { class: "lines", tabindex: 0, "aria-label": title }, found.lines.map((line) => h("li", {}, dot(line.name), h("span", { class: "muted" }, bdi(line.name), ` · ${line.role} `), bdi(line.text), line.hidden ? "…" : ""))) : h("p", { class: "muted" }, "nothing"),
      found.count > found.lines.length ? h("p", { class: "muted" }, `and ${num(found.count - found.lines.length)} more`) : null,
    );
  }
}
