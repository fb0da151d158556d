// One window: the bar, what if, the slots, and what is in it.

import { aborted, ask } from "./api.js";
import { answer } from "./answer.js";
import { bar, legend, prefix } from "./bar.js";
import { bdi, dot, fill, groupOf, h, many, num, percent, providerTokens, say, when } from "./dom.js";
import { ladder } from "./ladder.js";
import { messages } from "./messages.js";
import { Slider } from "./slider.js";
import { fate, fits, level, reason, why } from "./words.js";

const COLUMNS = ["slot", "what became of it", "kept", "asked", "messages", "priority", "floor", "cap", "why", "kept from"];
const NUMBERS = ["kept", "asked", "messages", "priority", "floor", "cap"];
// So many slots of one name are one row that opens.
const TOGETHER = 4;

export class WindowView {
  constructor(main, go) {
    this.main = main;
    this.go = go;
    this.tab = "messages";
    this.opened = new Set();
  }

  async show({ session, turn, step, budget }, about) {
    const which = { session, turn, step };
    const told = await ask("window", which, "window");
    if (this.go.view() !== "window") return;
    this.which = which;
    this.own = told;
    this.now = told;
    this.shared = null;
    this.lived = new Map();
    this.parts = {};
    for (const name of ["figures", "picture", "changes", "table", "tabs", "body"]) {
      this.parts[name] = h("div", { class: name });
    }
    this.slider = new Slider({ own: told.own_budget, most: told.most_budget, set: (value) => this.plan(value) });
    fill(
      this.main,
      this.head(told, about),
      told.note ? h("p", { class: "note", "data-note": true }, told.note) : null,
      h("section", { class: "card", "aria-label": "The budget" }, this.parts.figures, this.parts.picture, this.slider.element, this.parts.changes),
      answer(told),
      h("section", { class: "card", "aria-label": "Slots" }, h("h2", {}, "Slots"), this.parts.table),
      h("section", { class: "card", "aria-label": "Contents" }, this.parts.tabs, this.parts.body),
    );
    this.draw();
    this.drawBody();
    this.share(which);
    if (budget !== null && budget !== told.own_budget) await this.plan(budget);
  }

  head(told, about) {
    return h(
      "header",
      { class: "head" },
      h("h1", {}, about?.title || `Turn ${told.turn}`),
      h(
        "p",
        { class: "muted facts" },
        h("span", {}, `turn ${num(told.turn)}, step ${told.step}`),
        told.model ? h("span", { "data-model": true }, told.model) : null,
        h("span", {}, `counted by ${told.report.tokenizer}`),
        h("time", { datetime: told.time }, when(told.time)),
      ),
      about?.repeats ? h("p", { class: "note", "data-repeats": true }, `This step ${about.repeats}.`) : null,
    );
  }

  async share(which) {
    try {
      const told = await ask("shares", { session: which.session, first: which.turn, step: which.step, count: 1, most: 1 }, "share");
      const found = told.windows.find((each) => each.step === which.step);
      if (this.which !== which || !found) return;
      this.shared = found;
      if (this.now === this.own) this.drawPicture();
    } catch (error) {
      if (!aborted(error)) throw error;
    }
  }

  draw() {
    const { report } = this.now;
    fill(
      this.parts.figures,
      h("b", { class: "big", "data-tokens": report.tokens }, num(report.tokens)),
      h("span", { class: "muted" }, ` of ${num(report.budget)} tokens`),
      h("span", { class: "pill" }, percent(report.tokens, report.budget)),
      report.over_budget ? h("span", { class: "pill bad", "data-over": true }, "over budget: cannot be sent") : null,
      report.fallback && report.slots.some((slot) => slot.floor) ? h("span", { class: "pill warn" }, "floors ignored") : null,
      this.now !== this.own ? h("span", { class: "pill what", "data-planned": report.budget }, `planned again; sent with ${num(this.own.own_budget)}`) : null,
    );
    this.drawPicture();
    this.drawTable();
    this.drawChanges();
    this.drawTabs();
  }

  drawPicture() {
    const { report, marks } = this.now;
    const other = this.now !== this.own;
    const scale = other
      ? Math.max(report.budget, report.tokens, this.own.report.budget, this.own.report.tokens)
      : null;
    fill(
      this.parts.picture,
      bar(report, { scale, onpick: (slot) => this.pick(slot) }),
      other ? h("div", { class: "was" }, bar(this.own.report, { scale, small: true }), h("span", { class: "muted" }, "as it was sent")) : null,
      other ? null : prefix(report, marks, this.shared),
      this.warnings(report),
      legend(report),
      ladder(report),
    );
  }

  warnings(report) {
    const known = report.prefix;
    if (!known) return null;
    const told = [];
    if (known.moved) {
      told.push(`The beginning changed at message ${num(known.moved.message)}, in slot ${known.moved.slot}: ${num(known.moved.tokens)} tokens fewer than expected can be read from a cache.`);
    }
    for (const name of known.unstable ?? []) told.push(`Slot ${name} is declared as stable, but changed since the turn before.`);
    told.push(...(known.warnings ?? []));
    return told.length ? h("ul", { class: "warnings" }, told.map((text) => h("li", {}, text))) : null;
  }

  // What if.

  nudge(part) {
    const budget = this.now.budget;
    this.plan(Math.max(0, budget + Math.sign(part) * Math.max(1, Math.round(Math.abs(part) * this.own.own_budget))));
  }

  async plan(budget) {
    const own = budget === this.own.own_budget;
    this.slider.show(budget);
    this.go.budget(own ? null : budget);
    if (own) {
      ask("window", this.which, "plan").catch(() => {}); // ends a question that is under way
      this.now = this.own;
      this.draw();
      this.drawBody();
      say(`As sent: ${num(budget)} tokens.`);
      return;
    }
    this.main.setAttribute("aria-busy", "true");
    try {
      this.now = await ask("plan", { ...this.which, budget }, "plan");
      this.draw();
      this.drawBody();
      const { came, went } = this.now.changes;
      say(`At ${num(budget)} tokens: ${many(came.count, "message")} more, ${many(went.count, "message")} fewer.`);
    } catch (error) {
      if (aborted(error)) return;
      fill(this.parts.changes, h("p", { class: "note bad" }, error.message));
    } finally {
      this.main.removeAttribute("aria-busy");
    }
  }

  drawChanges() {
    if (this.now === this.own) {
      fill(this.parts.changes);
      return;
    }
    const words = { came: "come in", went: "go out", changed: "are cut differently" };
    const { changes } = this.now;
    const before = new Map(this.own.report.slots.map((slot) => [slot.index, slot]));
    const moved = this.now.report.slots.filter((slot) => before.get(slot.index)?.status !== slot.status);
    const empty = !moved.length && Object.values(changes).every((each) => !each.count);
    fill(
      this.parts.changes,
      empty ? h("p", { class: "muted" }, "Nothing comes or goes.") : null,
      this.moved(moved, before),
      Object.entries(words).map(([name, word]) => {
        const found = changes[name];
        if (!found.count) return null;
        return h(
          "details",
          { class: name, "data-change": name, "data-count": found.count },
          h("summary", {}, `${many(found.count, "message")} ${found.count === 1 ? word.replace("come", "comes").replace("go ", "goes ").replace("are", "is") : word}`),
          h("ul", { tabindex: 0, "aria-label": word }, found.lines.map((line) => this.excerpt(line))),
          found.count > found.lines.length ? h("p", { class: "muted" }, `and ${num(found.count - found.lines.length)} more`) : null,
        );
      }),
    );
  }

  // What became of slots; of many of one name in one line.
  moved(slots, before) {
    const alike = new Map();
    for (const slot of slots) {
      const was = level(before.get(slot.index)?.status ?? "?");
      const name = grouped(slots, slot) ? groupOf(slot.name) : slot.name;
      const key = `${name} ${was} ${slot.status}`;
      alike.set(key, { name, was, status: slot.status, count: (alike.get(key)?.count ?? 0) + 1 });
    }
    return [...alike.values()].map(({ name, was, status, count }) =>
      h("p", { class: "moved", "data-moved": name }, dot(name), h("b", {}, bdi(name)), count > 1 ? ` (${many(count, "slot")})` : "", ` ${was} → `, h("span", { class: `status ${status}` }, level(status))),
    );
  }

  excerpt(line) {
    const name = this.nameOf(line.slot);
    return h("li", {}, dot(name), h("span", { class: "muted" }, bdi(name), ` · ${line.role} `), bdi(line.text), line.hidden ? "…" : "");
  }

  nameOf(index) {
    return this.now.report.slots.find((slot) => slot.index === index)?.name ?? "(joined)";
  }

  // The slots.

  drawTable() {
    const { report } = this.now;
    const extra = [["(tools)", report.tools_tokens], ["(joined)", report.joined_tokens], ["(lead)", report.lead_tokens], ["(answer)", report.answer_tokens], ["(provider)", providerTokens(report)]].filter(([, tokens]) => tokens);
    fill(
      this.parts.table,
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Slots, a table" },
        h(
          "table",
          { class: "slots" },
          h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { class: NUMBERS.includes(name) ? "n" : null, scope: "col" }, name)))),
          this.bodies(report),
          h("tbody", {}, extra.map(([name, tokens]) =>
            h("tr", { class: "extra", "data-extra": name }, h("td", {}, dot(name), name), h("td", {}, h("span", { class: "status kept" }, level("kept"))), h("td", { class: "n" }, num(tokens)), h("td", { class: "n" }, num(tokens)), h("td", { colspan: 6 })),
          )),
        ),
      ),
    );
  }

  // One row a slot; of many slots of one name one row, and theirs when it is opened.
  bodies(report) {
    const groups = new Map();
    for (const slot of report.slots) {
      const name = groupOf(slot.name);
      groups.set(name, [...(groups.get(name) ?? []), slot]);
    }
    return [...groups].map(([name, slots]) => {
      if (slots.length < TOGETHER) return h("tbody", {}, slots.map((slot) => this.row(slot)));
      const open = this.opened.has(name);
      const inside = h("tbody", { hidden: !open, class: "inside" }, slots.map((slot) => this.row(slot)));
      return [h("tbody", {}, this.groupRow(name, slots, inside, open)), inside];
    });
  }

  groupRow(name, slots, inside, open) {
    const sum = (key) => slots.reduce((all, slot) => all + slot[key], 0);
    const states = new Map();
    for (const slot of slots) states.set(slot.status, (states.get(slot.status) ?? 0) + 1);
    const counts = [...states].map(([status, count]) => `${num(count)} ${level(status)}`);
    const button = h("button", { class: "ghost tiny", "aria-expanded": String(open), onclick: () => {
      inside.hidden = !inside.hidden;
      if (inside.hidden) this.opened.delete(name);
      else this.opened.add(name);
      button.setAttribute("aria-expanded", String(!inside.hidden));
      button.textContent = inside.hidden ? "show each" : "fold";
    } }, open ? "fold" : "show each");
    return h(
      "tr",
      { "data-group": name },
      h("td", {}, dot(name), h("b", {}, bdi(name)), h("small", { class: "muted" }, many(slots.length, "slot"))),
      h("td", {}, counts.join(", ")),
      h("td", { class: "n" }, num(sum("tokens_kept"))),
      h("td", { class: "n" }, num(sum("tokens_asked"))),
      h("td", { class: "n" }, `${num(sum("messages_kept"))}/${num(sum("messages_asked"))}`),
      h("td", { colspan: 4 }),
      h("td", {}, button),
    );
  }

  row(slot) {
    const cell = (name, text, numeric = true) => h("td", { class: numeric ? "n" : null, "data-cell": name }, text);
    const near = slot.decisions.filter((each) => each.fits_with !== null).sort((a, b) => a.fits_with - b.fits_with)[0];
    const rule = this.own.rules[slot.index] ?? {};
    const marks = [rule.required ? "required" : null, slot.tier, rule.trim_behavior === "char" ? `cut by character, ${rule.keep ?? "tail"} kept` : null].filter(Boolean);
    return h(
      "tr",
      { "data-slot": slot.index, id: `slot-${slot.index}`, tabindex: -1 },
      h("td", { "data-cell": "name" }, dot(slot.name), h("b", {}, slot.name), marks.length ? h("small", { class: "muted" }, marks.join(", ")) : null),
      cell("status", h("span", { class: `status ${slot.status}`, "data-status": slot.status }, level(slot.status)), false),
      cell("tokens_kept", num(slot.tokens_kept)),
      cell("tokens_asked", `${slot.asked_is_estimate ? "~" : ""}${num(slot.tokens_asked)}`),
      cell("messages", `${num(slot.messages_kept)}/${num(slot.messages_asked)}`),
      cell("priority", String(slot.priority)),
      cell("floor", slot.floor ? num(slot.floor) : "–"),
      cell("cap", slot.cap === null ? "–" : num(slot.cap)),
      h("td", { "data-cell": "why", "data-reason": slot.reason, class: "why", title: slot.reason }, bdi(why(slot)), near ? h("small", { class: "muted" }, slot.messages_asked > 1 ? `more of it ${fits(near, this.now.budget, slot.cap).replace("kept whole", "fits")}` : fits(near, this.now.budget, slot.cap)) : null),
      h("td", { "data-cell": "survives" }, this.survives(slot)),
    );
  }

  survives(slot) {
    const known = this.lived.get(slot.index);
    if (known) return known.cloneNode(true);
    return h("button", { class: "ghost tiny", "data-find": slot.index, "aria-label": `Find from which budget on ${slot.name} is kept`, onclick: async (event) => {
      const place = event.target.parentElement;
      fill(place, h("span", { class: "muted" }, "…"));
      let found;
      try {
        found = told(await ask("survival", { ...this.which, slot: slot.index }), slot);
      } catch (error) {
        found = h("span", { class: "bad" }, error.message);
      }
      this.lived.set(slot.index, found);
      fill(place, found.cloneNode(true));
    } }, "find");
  }

  pick(slot) {
    const name = groupOf(this.nameOf(slot));
    const row = document.getElementById(`slot-${slot}`);
    if (row?.closest("[hidden]")) this.parts.table.querySelector(`tr[data-group="${CSS.escape(name)}"] button`)?.click();
    row?.scrollIntoView({ block: "nearest", behavior: "smooth" });
    row?.focus();
  }

  // What is in it.

  drawTabs() {
    const { report } = this.now;
    const out = report.slots.filter((slot) => ["dropped", "excluded", "trimmed", "short", "stubbed", "empty"].includes(slot.status)).length;
    const names = { messages: "Messages", tools: `Tools ${num(this.own.tools.length)}`, out: `Left out ${num(out)}` };
    fill(
      this.parts.tabs,
      h("div", { role: "group", "aria-label": "Contents", class: "tablist" }, Object.entries(names).map(([name, label]) =>
        h("button", { "aria-pressed": String(this.tab === name), "data-tab": name, onclick: () => { this.tab = name; this.drawTabs(); this.drawBody(); } }, label),
      )),
    );
  }

  drawBody() {
    const { body } = this.parts;
    if (this.tab === "messages") {
      const budget = this.now === this.own ? null : this.now.budget;
      messages(body, { ...this.which, budget }, (index) => this.nameOf(index));
    } else if (this.tab === "tools") fill(body, this.tools());
    else fill(body, this.leftOut());
  }

  tools() {
    if (!this.own.tools.length) return h("p", { class: "muted" }, "No tools are sent with this window.");
    return this.own.tools.map((tool) =>
      h("details", { class: "tool", "data-tool": tool.name }, h("summary", {}, h("code", {}, tool.name), h("span", { class: "muted" }, tool.description)), h("pre", {}, tool.schema.text, tool.schema.hidden ? h("em", {}, `… ${num(tool.schema.hidden)} more characters`) : null)),
    );
  }

  // Those of many slots of one name together, folded.
  leftTogether(slots) {
    const names = [...new Set(slots.map((slot) => groupOf(slot.name)))];
    return names.map((name) => {
      const own = slots.filter((slot) => groupOf(slot.name) === name);
      if (own.length < TOGETHER) return own.map((slot) => this.left(slot));
      return h("details", { class: "left", "data-out-group": name }, h("summary", {}, dot(name), h("b", {}, bdi(name)), ` ${many(own.length, "slot")}`), own.map((slot) => this.left(slot)));
    });
  }

  // A slot, and what of it was left out; of a single message all in one line.
  left(slot) {
    const out = slot.decisions.filter((each) => each.status !== "kept").sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9));
    const size = (each) => `, ${num(each.tokens_kept)} of ${num(each.tokens_asked)} tokens kept`;
    const told = (each) => h("small", { class: "muted", "data-fate": true }, ` ${fate(each, this.now.budget, slot.cap, this.now !== this.own)}`);
    const only = slot.messages_asked === 1 && out.length === 1 ? out[0] : null;
    return h(
      "div",
      { class: "left", "data-out": slot.index },
      h("p", { "data-decision": only ? only.first : null }, dot(slot.name), h("b", {}, slot.name), " ", h("span", { class: `status ${slot.status}`, "data-status": slot.status }, level(slot.status)), " ", h("span", { "data-reason": slot.reason }, bdi(why(slot))), only ? [size(only), told(only)] : null),
      only ? null : h("ul", {}, out.slice(0, 200).map((each) =>
        h("li", { "data-decision": each.first }, h("span", { class: `status ${each.status}` }, level(each.status)), ` ${each.count === 1 ? `message ${num(each.first)}` : `messages ${num(each.first)} to ${num(each.first + each.count - 1)}`}`, each.reason ? [", ", bdi(reason(each.reason))] : "", size(each), told(each)),
      )),
    );
  }

  leftOut() {
    const slots = this.now.report.slots.filter((slot) => slot.status !== "kept");
    const lost = this.now.report.not_carried ?? [];
    if (!slots.length && !lost.length) return h("p", { class: "muted" }, "Everything that was declared is in the window.");
    return [
      this.leftTogether(slots),
      lost.length ? h("div", { class: "left" }, h("p", {}, h("b", {}, "Not carried by the request")), h("ul", {}, lost.map((each) => h("li", {}, `${each.provider}${each.message === null ? "" : `, message ${each.message}`}: ${each.what}: ${each.reason}`)))) : null,
    ];
  }
}

// Whether a slot is one of many of its name.
const grouped = (slots, slot) => slots.filter((each) => groupOf(each.name) === groupOf(slot.name)).length >= TOGETHER;

function told(found) {
  if (found.some === null) {
    return h("span", { class: "muted", "data-some": "none", title: `tried up to ${num(found.most)} tokens` }, found.status === "excluded" || found.status === "empty" ? level(found.status) : `no budget${found.reason ? `: ${reason(found.reason)}` : ""}`);
  }
  return h(
    "span",
    { "data-some": found.some, "data-all": found.all ?? "none" },
    h("b", {}, num(found.some_from)),
    found.all_from === found.some_from ? null : h("small", { class: "muted" }, found.all === null ? ` never whole${found.reason ? `: ${reason(found.reason)}` : ""}` : ` whole from ${num(found.all_from)} on`),
    found.some < found.some_from ? h("small", { class: "muted", title: "A larger budget lets another slot in, which takes the room." }, ` also at ${num(found.some)}`) : null,
  );
}
