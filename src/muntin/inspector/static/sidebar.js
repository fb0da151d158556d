// Sessions and turns, on the left.

import { aborted, ask } from "./api.js";
import { $, ago, bdi, colour, fill, h, many, num } from "./dom.js";
import { Rows } from "./list.js";
import { panes } from "./bar.js";

const SESSION = 46;
const TURN = 70;
// How many excerpts of a search of all sessions are shown.
const HITS = 100;

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
    // Enter looks at what was said, not only at names: that may take a while.
    $("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && $("search").value.trim()) this.find($("search").value);
    });
    $("find").addEventListener("click", () => this.find($("search").value));
  }

  // What all sessions have on a question, piece by piece: what has most of its words first, then
  // what is newest.
  async find(query) {
    const hits = $("hits");
    fill(hits, h("p", { class: "muted pad" }, "Looking through what was said …"));
    let found = [];
    try {
      for (let offset = 0; offset !== null; ) {
        const told = await ask("find", { query, offset }, "find");
        if ($("search").value !== query) return;
        found = found.concat(told.found).sort((a, b) => b.words.length - a.words.length);
        this.drawHits(found, told);
        offset = told.next;
      }
    } catch (error) {
      if (!aborted(error)) fill(hits, h("p", { class: "warn pad" }, error.message));
    }
  }

  drawHits(found, told) {
    const where = `${num(told.looked)} of ${many(told.sessions, "session")}`;
    const best = found.length > HITS ? `, the best ${HITS} of them here` : "";
    fill(
      $("hits"),
      h("p", { class: "muted pad", role: "status", "data-looked": told.looked }, `${found.length ? num(found.length) : "Nothing"} found in ${where}${best}${told.next === null ? "" : " …"}`),
      found.slice(0, HITS).map((each) => this.hit(each)),
    );
  }

  hit(each) {
    return h(
      "a",
      { class: "hit", "data-hit": each.positions[0], "data-in": each.session, href: this.go.link({ session: each.session, turn: each.turn, step: 0, view: "window" }) },
      h("b", {}, bdi(each.session)),
      h("span", { class: "muted" }, ` turn ${num(each.turn)} · ${each.words.slice(0, 4).join(", ") || "near a match"}`),
      h("span", { class: "text" }, bdi(each.text)),
    );
  }

  async load(search = "") {
    const told = await ask("sessions", { search }, "sessions");
    fill($("store"), bdi(told.store));
    $("store").title = told.store;
    this.search = search;
    $("find").hidden = !search.trim();
    if (!search.trim()) fill($("hits"));
    this.sessions = told.sessions;
    this.total = told.total;
    this.sessionRows.set(this.total);
    if (!this.total) {
      fill($("sessions"), h("p", { class: "muted pad" }, search ? "No session of this name. Enter searches what was said." : "This store has no sessions yet."));
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

  // Its windows are not known yet.
  wait(session) {
    this.session = session;
    this.windows = [];
    $("turns-title").textContent = "Windows …";
    this.sessionRows.clear();
    this.sessionRows.paint();
    this.turnRows.set(0);
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
    const did = each.did?.length ? each.did.join("; ") : each.said;
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
        title: [each.title, did, each.repeats].filter(Boolean).join("\n"),
      },
      h("span", { class: "no" }, first ? num(each.turn) : `·${each.step}`),
      h("span", { class: "what" }, first ? each.title || "(no input)" : h("span", { class: "did" }, bdi(did || `step ${each.step}`))),
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
      first && did ? h("span", { class: "did" }, bdi(did)) : null,
      h("span", { class: "flags" }, each.repeats ? h("em", { class: "warn", "data-repeats": true }, "repeats") : each.over_budget || each.status === "failed" ? h("em", { class: "bad" }, each.over_budget ? "over" : each.reason === "gave_up" ? "gave up" : "failed") : cut ? h("em", { class: "warn" }, "cut") : null),
    );
  }
}
