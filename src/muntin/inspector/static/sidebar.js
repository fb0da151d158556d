// Sessions and turns, on the left.

import { ask } from "./api.js";
import { $, ago, colour, fill, h, many, num } from "./dom.js";
import { Rows } from "./list.js";
import { panes } from "./bar.js";

const SESSION = 46;
const TURN = 54;

export class Sidebar {
  constructor(go) {
    this.go = go;
    this.sessions = [];
    this.total = 0;
    this.windows = [];
    this.session = null;
    this.at = null;
    this.sessionRows = new Rows($("sessions"), SESSION, (place) => this.drawSession(place));
    this.turnRows = new Rows($("turns"), TURN, (place) => this.drawTurn(place));
    let waiting = null;
    $("search").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.load($("search").value), 120);
    });
  }

  async load(search = "") {
    const told = await ask("sessions", { search }, "sessions");
    $("store").textContent = told.store;
    $("store").title = told.store;
    this.search = search;
    this.sessions = told.sessions;
    this.total = told.total;
    this.sessionRows.set(this.total);
    if (!this.total) {
      fill($("sessions"), h("p", { class: "muted pad" }, search ? "No session of this name." : "This store has no sessions yet."));
    } else if (!$("sessions").contains(this.sessionRows.space)) {
      $("sessions").replaceChildren(this.sessionRows.space);
    }
    return told;
  }

  async more(place) {
    if (this.loading) return;
    this.loading = true;
    try {
      const offset = Math.floor(place / 100) * 100;
      const told = await ask("sessions", { search: this.search, offset });
      told.sessions.forEach((each, n) => (this.sessions[offset + n] = each));
      this.sessionRows.clear();
      this.sessionRows.paint();
    } finally {
      this.loading = false;
    }
  }

  drawSession(place) {
    const info = this.sessions[place];
    if (!info) {
      this.more(place);
      return h("a", { class: "row session" }, h("span", { class: "muted" }, "…"));
    }
    return h(
      "a",
      {
        class: "row session",
        href: this.go.link({ session: info.id }),
        title: info.id,
        "aria-current": info.id === this.session ? "true" : null,
        "data-session": info.id,
      },
      h("b", {}, info.id),
      h("span", { class: "muted" }, `${many(info.turns, "turn")} · ${ago(info.updated)}`),
    );
  }

  // The windows of the session, the newest first in the list, the oldest first in `windows`.
  show(session, windows, unreported) {
    this.session = session;
    this.windows = windows;
    const missing = unreported.length
      ? ` · ${many(unreported.length, "turn")} without a report`
      : "";
    $("turns-title").textContent = session === null ? "Turns" : `${many(windows.length, "window")}${missing}`;
    this.sessionRows.clear();
    this.sessionRows.paint();
    this.turnRows.set(windows.length);
  }

  select(turn, step) {
    this.at = `${turn}.${step}`;
    const place = this.windows.findIndex((each) => each.turn === turn && each.step === step);
    this.turnRows.clear();
    if (place >= 0) this.turnRows.reveal(this.windows.length - 1 - place);
    else this.turnRows.paint();
  }

  drawTurn(place) {
    const each = this.windows[this.windows.length - 1 - place];
    const first = each.step === 1 || this.windows[this.windows.length - 2 - place]?.turn !== each.turn;
    const cut = each.slots.some((slot) => ["trimmed", "short", "stubbed", "dropped"].includes(slot.status));
    const all = Math.max(each.budget, each.tokens, 1);
    return h(
      "a",
      {
        class: `row turn${first ? "" : " later"}`,
        href: this.go.link({ session: this.session, turn: each.turn, step: each.step }),
        "aria-current": this.at === `${each.turn}.${each.step}` ? "true" : null,
        "data-turn": each.turn,
        "data-step": each.step,
        title: each.title,
      },
      h("span", { class: "no" }, first ? num(each.turn) : `·${each.step}`),
      h("span", { class: "what" }, first ? each.title || "(no input)" : `step ${each.step}`),
      h("span", { class: "n muted" }, num(each.tokens)),
      h(
        "span",
        { class: "mini" },
        panes({ ...each }).map((pane) =>
          h("i", {
            class: pane.name === "free" ? "free" : colour(pane.name),
            style: { width: `${(100 * pane.tokens) / all}%` },
          }),
        ),
      ),
      h("span", { class: "flags" }, each.over_budget || each.status === "failed" ? h("em", { class: "bad" }, each.over_budget ? "over" : each.reason === "gave_up" ? "gave up" : "failed") : cut ? h("em", { class: "warn" }, "cut") : null),
    );
  }
}
