// One window: the bar, what if, the slots, and what is in it.

import { aborted, ask } from "./api.js";
import { bar, legend, prefix } from "./bar.js";
import { bdi, dot, fill, h, many, num, percent, say, when } from "./dom.js";
import { messages } from "./messages.js";

const COLUMNS = ["slot", "status", "kept", "asked", "messages", "priority", "floor", "cap", "why"];

export class WindowView {
  constructor(main, go) {
    this.main = main;
    this.go = go;
    this.tab = "messages";
  }

  async show({ session, turn, step, budget }, about) {
    const which = { session, turn, step };
    const told = await ask("window", which, "window");
    this.which = which;
    this.own = told;
    this.now = told;
    this.shared = null;
    this.lived = new Map();
    this.parts = {};
    for (const name of ["figures", "picture", "changes", "table", "tabs", "body"]) {
      this.parts[name] = h("div", { class: name });
    }
    fill(
      this.main,
      this.head(told, about),
      told.note ? h("p", { class: "note", "data-note": true }, told.note) : null,
      h("section", { class: "card" }, this.parts.figures, this.parts.picture, this.slider(told), this.parts.changes),
      h("section", { class: "card" }, h("h2", {}, "Slots"), this.parts.table),
      h("section", { class: "card" }, this.parts.tabs, this.parts.body),
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
    );
  }

  async share(which) {
    try {
      const told = await ask("shares", { session: which.session, first: which.turn, count: 1 }, "share");
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
      levels(report).map(([name, words]) => h("span", { class: "pill", "data-level": name }, words)),
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
    );
  }

  warnings(report) {
    const known = report.prefix;
    if (!known) return null;
    const told = [];
    if (known.moved) {
      told.push(`The prefix moved at message ${known.moved.message}: slot ${known.moved.slot} (${known.moved.reason}), ${num(known.moved.tokens)} tokens less than expected are shared.`);
    }
    for (const name of known.unstable ?? []) told.push(`Slot ${name} claims to be stable, but changed since the turn before.`);
    told.push(...(known.warnings ?? []));
    return told.length ? h("ul", { class: "warnings" }, told.map((text) => h("li", {}, text))) : null;
  }

  // What if.

  slider(told) {
    const most = told.most_budget;
    const set = (value) => this.plan(Math.max(0, Math.min(100_000_000, Math.round(value))));
    this.range = h("input", {
      type: "range", id: "budget", min: 0, max: most, step: 1, value: told.own_budget,
      "aria-label": "What if the budget were", list: "own-budget",
      oninput: (event) => set(Number(event.target.value)),
    });
    this.number = h("input", {
      type: "number", id: "budget-number", min: 0, max: 100_000_000, value: told.own_budget,
      "aria-label": "Budget in tokens",
      onchange: (event) => event.target.value !== "" && set(Number(event.target.value)),
    });
    this.reset = h("button", { id: "budget-reset", class: "ghost", disabled: true, onclick: () => set(told.own_budget) }, "As sent");
    return h(
      "div",
      { class: "whatif" },
      h("label", { for: "budget" }, "What if the budget were"),
      this.range,
      h("datalist", { id: "own-budget" }, h("option", { value: told.own_budget })),
      this.number,
      h("span", { class: "muted" }, "tokens"),
      this.reset,
    );
  }

  nudge(part) {
    const budget = this.now.budget;
    this.plan(Math.max(0, budget + Math.sign(part) * Math.max(1, Math.round(Math.abs(part) * this.own.own_budget))));
  }

  async plan(budget) {
    this.range.value = budget;
    this.number.value = budget;
    const own = budget === this.own.own_budget;
    this.reset.disabled = own;
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
      moved.map((slot) =>
        h("p", { class: "moved", "data-moved": slot.name }, dot(slot.name), h("b", {}, slot.name), ` ${before.get(slot.index)?.status ?? "?"} → `, h("span", { class: `status ${slot.status}` }, slot.status)),
      ),
      Object.entries(words).map(([name, word]) => {
        const found = changes[name];
        if (!found.count) return null;
        return h(
          "details",
          { class: name, "data-change": name, "data-count": found.count },
          h("summary", {}, `${many(found.count, "message")} ${found.count === 1 ? word.replace("come", "comes").replace("go ", "goes ").replace("are", "is") : word}`),
          h("ul", {}, found.lines.map((line) => this.excerpt(line))),
          found.count > found.lines.length ? h("p", { class: "muted" }, `and ${num(found.count - found.lines.length)} more`) : null,
        );
      }),
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
    const extra = [["(tools)", report.tools_tokens], ["(joined)", report.joined_tokens], ["(lead)", report.lead_tokens]].filter(([, tokens]) => tokens);
    fill(
      this.parts.table,
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "slots" },
          h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { class: ["kept", "asked", "messages", "priority", "floor", "cap"].includes(name) ? "n" : null, scope: "col" }, name)), h("th", { scope: "col" }, "survives from"))),
          h("tbody", {}, report.slots.map((slot) => this.row(slot)), extra.map(([name, tokens]) =>
            h("tr", { class: "extra", "data-extra": name }, h("td", {}, dot(name), name), h("td", {}, h("span", { class: "status kept" }, "kept")), h("td", { class: "n" }, num(tokens)), h("td", { class: "n" }, num(tokens)), h("td", { colspan: 6 })),
          )),
        ),
      ),
    );
  }

  row(slot) {
    const cell = (name, text, numeric = true) => h("td", { class: numeric ? "n" : null, "data-cell": name }, text);
    const near = slot.decisions.map((each) => each.fits_with).filter((each) => each !== null);
    const why = [slot.reason, slot.detail].filter(Boolean).join(": ");
    const rule = this.own.rules[slot.index] ?? {};
    const marks = [rule.required ? "required" : null, slot.tier, rule.trim_behavior === "char" ? `cut by character, ${rule.keep ?? "tail"} kept` : null].filter(Boolean);
    return h(
      "tr",
      { "data-slot": slot.index, id: `slot-${slot.index}`, tabindex: -1 },
      h("td", { "data-cell": "name" }, dot(slot.name), h("b", {}, slot.name), marks.length ? h("small", { class: "muted" }, marks.join(", ")) : null),
      cell("status", h("span", { class: `status ${slot.status}` }, slot.status), false),
      cell("tokens_kept", num(slot.tokens_kept)),
      cell("tokens_asked", `${slot.asked_is_estimate ? "~" : ""}${num(slot.tokens_asked)}`),
      cell("messages", `${num(slot.messages_kept)}/${num(slot.messages_asked)}`),
      cell("priority", String(slot.priority)),
      cell("floor", slot.floor ? num(slot.floor) : "–"),
      cell("cap", slot.cap === null ? "–" : num(slot.cap)),
      h("td", { "data-cell": "why", class: "why" }, bdi(why), near.length ? h("small", { class: "muted" }, `needs +${num(Math.min(...near))} tokens or more`) : null),
      h("td", { "data-cell": "survives" }, this.survives(slot)),
    );
  }

  survives(slot) {
    const known = this.lived.get(slot.index);
    if (known) return known.cloneNode(true);
    return h("button", { class: "ghost tiny", "data-find": slot.index, onclick: async (event) => {
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
    const row = document.getElementById(`slot-${slot}`);
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
      h("div", { role: "tablist", class: "tablist" }, Object.entries(names).map(([name, label]) =>
        h("button", { role: "tab", "aria-selected": String(this.tab === name), "data-tab": name, onclick: () => { this.tab = name; this.drawTabs(); this.drawBody(); } }, label),
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

  leftOut() {
    const slots = this.now.report.slots.filter((slot) => slot.status !== "kept");
    const lost = this.now.report.not_carried ?? [];
    if (!slots.length && !lost.length) return h("p", { class: "muted" }, "Everything that was declared is in the window.");
    return [
      slots.map((slot) => h(
        "div",
        { class: "left", "data-out": slot.index },
        h("p", {}, dot(slot.name), h("b", {}, slot.name), " ", h("span", { class: `status ${slot.status}` }, slot.status), " ", bdi([slot.reason, slot.detail].filter(Boolean).join(": "))),
        h("ul", {}, slot.decisions.filter((each) => each.status !== "kept").sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9)).slice(0, 200).map((each) =>
          h("li", { "data-decision": each.first }, h("span", { class: `status ${each.status}` }, each.status), ` ${each.count === 1 ? `message ${num(each.first)}` : `messages ${num(each.first)} to ${num(each.first + each.count - 1)}`}`, each.reason ? [", ", bdi(each.reason)] : "", `, ${num(each.tokens_kept)} of ${num(each.tokens_asked)} tokens kept`, each.rank ? h("small", { class: "muted" }, ` cut as number ${num(each.rank)}`) : null, each.fits_with ? h("small", { class: "muted" }, ` whole with +${num(each.fits_with)}`) : null),
        )),
      )),
      lost.length ? h("div", { class: "left" }, h("p", {}, h("b", {}, "Not carried by the request")), h("ul", {}, lost.map((each) => h("li", {}, `${each.provider}${each.message === null ? "" : `, message ${each.message}`}: ${each.what}: ${each.reason}`)))) : null,
    ];
  }
}

// How much of the past is shown shorter than it was, and the summary in front of it.
function levels(report) {
  const all = report.slots.flatMap((slot) => slot.decisions);
  const told = ["short", "stubbed"].map((name) => [name, all.filter((each) => each.status === name).length])
    .filter(([, count]) => count).map(([name, count]) => [name, `${many(count, "group")} ${name}`]);
  const summary = all.find((each) => each.reason === "summary" && !each.count);
  if (summary) told.push(["summary", `a summary of ${num(summary.tokens_kept)} tokens in front`]);
  return told;
}

function told(found) {
  if (found.some === null) {
    return h("span", { class: "muted", "data-some": "none", title: `tried up to ${num(found.most)} tokens` }, found.status === "excluded" || found.status === "empty" ? found.status : `no budget${found.reason ? `: ${found.reason}` : ""}`);
  }
  return h(
    "span",
    { "data-some": found.some, "data-all": found.all ?? "none" },
    h("b", {}, num(found.some)),
    found.all === found.some ? null : h("small", { class: "muted" }, found.all === null ? ` never whole${found.reason ? `: ${found.reason}` : ""}` : ` whole from ${num(found.all)}`),
  );
}
