// The session: tokens by slot, the share a cache can find again, and cost, window by window.

import { aborted, ask } from "./api.js";
import { chart } from "./chart.js";
import { bdi, dot, fill, h, many, money, num } from "./dom.js";

export class SessionView {
  constructor(main, go) {
    this.main = main;
    this.go = go;
    this.shares = new Map();
  }

  async show({ session, turn, step }, windows) {
    if (this.session !== session) this.shares = new Map();
    this.session = session;
    this.windows = windows;
    this.usage = null;
    this.at = windows.findIndex((each) => each.turn === turn && each.step === step);
    this.readout = h("div", { class: "readout", role: "status", "aria-live": "polite" });
    this.box = h("div", {});
    this.hits = h("div", { role: "status", "aria-live": "polite" });
    this.sum = h("p", { class: "muted facts" });
    fill(
      this.main,
      h("header", { class: "head" }, h("h1", {}, session), this.sum),
      h("section", { class: "card", "aria-label": "Search this session" }, this.searchForm(), this.hits),
      h("section", { class: "card", "aria-label": "Charts" }, this.readout, this.box),
    );
    this.draw();
    await this.load();
  }

  // What the session has on a question: the index that its windows recall from.
  searchForm() {
    const field = h("input", { type: "search", name: "query", "aria-label": "Search this session", placeholder: "Search what was said: a question, words, an identifier", autocomplete: "off", spellcheck: "false" });
    const look = async (event) => {
      event.preventDefault();
      if (!field.value.trim()) return fill(this.hits);
      try {
        const told = await ask("search", { session: this.session, query: field.value }, "search");
        if (told.session === this.session) this.drawHits(told.found);
      } catch (error) {
        if (!aborted(error)) fill(this.hits, h("p", { class: "warn" }, error.message));
      }
      return null;
    };
    return h("form", { class: "search", "data-search": true, onsubmit: look }, field);
  }

  drawHits(found) {
    const open = (turn) => {
      const each = this.windows.find((one) => one.turn === turn);
      return each ? h("button", { class: "tiny", onclick: () => this.go.to({ session: this.session, turn, step: each.step, view: "window" }) }, `turn ${num(turn)}`) : h("span", { class: "muted" }, `turn ${num(turn)}`);
    };
    fill(
      this.hits,
      found.length ? null : h("p", { class: "muted" }, "Nothing of this session bears on that."),
      found.map((each) => h("div", { class: "hit", "data-hit": each.positions[0] }, open(each.turn), h("span", { class: "muted" }, ` ${each.words.join(", ") || "near a match"} · ${each.score} `), h("pre", {}, bdi(each.text)))),
    );
  }

  draw() {
    const { windows } = this;
    if (!windows.length) {
      fill(this.box, h("p", { class: "muted" }, "No report of this session is kept."));
      return;
    }
    const shared = windows.map((each) => this.sharedOf(each));
    const costs = windows.map((each, n) => cost(each, shared[n]));
    const known = costs.filter((each) => each !== null);
    const whole = windows.every((each) => this.shares.has(`${each.turn}.${each.step}`));
    const priced = windows.some((each) => each.price);
    fill(
      this.sum,
      h("span", {}, many(windows.length, "window")),
      h("span", {}, `${num(windows.reduce((sum, each) => sum + each.tokens, 0))} tokens sent`),
      (this.usage?.words ?? []).map((line) => h("span", { "data-usage": true }, line)),
      !priced
        ? h("span", { "data-cost": "unknown" }, "cost unknown: the model has no known price")
        : whole
          ? h("span", { "data-cost": known.reduce((sum, each) => sum + each, 0) }, `about ${money(known.reduce((sum, each) => sum + each, 0))} for input`)
          : h("span", { "data-waiting": true }, "adding up the cost …"),
    );
    const pick = (n) => this.point(n);
    const open = (n) => this.go.to({ session: this.session, turn: windows[n].turn, step: windows[n].step, view: "window" });
    fill(
      this.box,
      h("h2", {}, "Tokens by slot"),
      chart({ windows, kind: "slots", at: this.at, pick, open }),
      h("h2", {}, "Begins like the window before ", h("small", { class: "muted" }, whole ? "the share a prompt cache can find again" : "the share a prompt cache can find again; still comparing …")),
      chart({ windows, kind: "share", values: shared.map((each, n) => (each === null ? null : each / Math.max(1, windows[n].tokens))), at: this.at, pick, open }),
      h("h2", {}, "Input cost ", h("small", { class: "muted" }, priced ? "estimated from the tokens of each window and the published prices, the shared beginning as a cache read" : "not known for this model")),
      priced && !whole ? h("p", { class: "muted" }, "Comparing the windows …") : known.length ? chart({ windows, kind: "cost", values: costs, at: this.at, pick, open }) : h("p", { class: "note", "data-nocost": true }, windows[0].model ? `No price of ${windows[0].model} is known here; pip install 'muntin[prices]' brings prices.` : "These windows were made for a model without a name like provider/model, so no price can be looked up."),
    );
    this.point(this.at >= 0 ? this.at : windows.length - 1);
  }

  sharedOf(each) {
    return this.shares.get(`${each.turn}.${each.step}`)?.shared_tokens ?? null;
  }

  point(n) {
    const each = this.windows[n];
    if (!each) return;
    const shared = this.sharedOf(each);
    const moved = this.shares.get(`${each.turn}.${each.step}`)?.moved;
    fill(
      this.readout,
      h("b", {}, `turn ${num(each.turn)}${each.step > 1 ? `, step ${each.step}` : ""}`),
      h("span", {}, `${num(each.tokens)} of ${num(each.budget)}`),
      each.slots.filter((slot) => slot.tokens_kept).map((slot) => h("span", {}, dot(slot.name), bdi(slot.name), " ", h("b", {}, num(slot.tokens_kept)))),
      shared === null ? null : h("span", {}, `${Math.round((100 * shared) / Math.max(1, each.tokens))} % as before`),
      moved ? h("span", { class: "warn" }, `moved by ${moved.slot}`) : null,
      each.price && this.shares.has(`${each.turn}.${each.step}`) ? h("span", {}, money(cost(each, shared))) : null,
    );
  }

  // Piece by piece: the server plans every window again for this.
  async load() {
    const { session } = this;
    const missing = () => this.session === session && this.box.isConnected && this.windows.find((each) => !this.shares.has(`${each.turn}.${each.step}`));
    try {
      this.usage = await ask("usage", { session }, "usage");
      if (this.session === session && this.box.isConnected) this.draw();
      for (let from = missing(); from; from = missing()) {
        const told = await ask("shares", { session, first: from.turn, step: from.step, count: 20 }, "shares");
        // Also one of which nothing is told: it is not asked for again.
        for (const each of [from, ...told.windows]) this.shares.set(`${each.turn}.${each.step}`, each);
        if (this.session === session && this.box.isConnected) this.draw();
      }
    } catch (error) {
      if (!aborted(error)) throw error;
    }
  }
}

function cost(each, shared) {
  if (!each.price) return null;
  const read = shared ?? 0;
  return ((each.tokens - read) * each.price.input + read * each.price.read) / 1e6;
}
