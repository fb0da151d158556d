// The page: which session, which window, which view; the keys; what is new.

import { aborted, ask, Refused } from "./api.js";
import { CompareView } from "./compare.js";
import { $, fill, forgetColours, h, many, num, sentence } from "./dom.js";
import { SessionView } from "./session.js";
import { Sidebar } from "./sidebar.js";
import { WindowView } from "./window.js";

const VIEWS = { window: "Window", compare: "Compare", session: "Session" };
// How often it is asked what is new, and which sessions there are.
const NEWS = 2000;
const SESSIONS = 4_000;
// A question that took long is not asked again at once: so many times as long is waited.
const REST = 5;

// The address keeps what is looked at; the token leaves it.
if (location.search) history.replaceState(null, "", `${location.pathname}${location.hash}`);

const state = { session: null, turn: null, step: null, view: "window", budget: null, other: null };
let windows = [];
let unreported = [];
let shown = 0;
let listed = Date.now();
// What is under way: nothing new is asked for meanwhile.
let under = 0;
let asking = false;
let rested = 0;
// Follow the newest window as it comes; what was chosen by hand stays.
let live = true;

const go = {
  link(to) {
    const { session, turn = null, step = null, view = state.view, budget = null, other = null } = to;
    const where = turn === null ? "" : `/${turn}.${step}`;
    const more = new URLSearchParams();
    if (view !== "window") more.set("view", view);
    if (budget !== null) more.set("budget", budget);
    if (other) more.set("other", `${other.turn}.${other.step}`);
    if (other?.session) more.set("of", other.session);
    return `#/${encodeURIComponent(session)}${where}${more.size ? `?${more}` : ""}`;
  },
  to(to) {
    location.hash = go.link(to);
  },
  sessions: () => sidebar.sessions,
  view: () => state.view,
  budget(budget) {
    state.budget = budget;
    history.replaceState(null, "", go.link(state));
  },
};

function readAddress() {
  const [path, query = ""] = location.hash.slice(2).split("?");
  const [name = "", at = ""] = path.split("/");
  const [turn, step] = at.split(".").map(Number);
  const more = new URLSearchParams(query);
  const [otherTurn, otherStep] = (more.get("other") ?? "").split(".").map(Number);
  const budget = Number(more.get("budget"));
  let session = null;
  try {
    session = name ? decodeURIComponent(name) : null;
  } catch {
    session = null;
  }
  return {
    session,
    turn: turn || null,
    step: step || null,
    view: more.get("view") in VIEWS ? more.get("view") : "window",
    budget: more.has("budget") && budget >= 0 ? budget : null,
    other: otherTurn || more.has("of") ? { session: more.get("of"), turn: otherTurn || 0, step: otherStep || 1 } : null,
  };
}

const stage = h("div", { id: "stage" });
const bar = h("div", { class: "top" });
const gone = h("p", { class: "note bad", id: "gone", role: "alert", hidden: true });
fill($("main"), bar, gone, stage);
const views = { window: new WindowView(stage, go), compare: new CompareView(stage, go), session: new SessionView(stage, go) };
const sidebar = new Sidebar(go);

async function loadSession(session) {
  windows = [];
  unreported = [];
  forgetColours();
  const info = await ask("turns", { session, count: 0 }, "turns");
  const first = Math.max(1, info.turns - 99);
  const told = await ask("turns", { session, first }, "turns");
  ({ windows, unreported } = told);
  sidebar.show(session, windows, unreported);
  const rest = restOf(session, first);
  if (!windows.length) await rest;
}

// Earlier pages come in behind what is looked at.
async function restOf(session, from) {
  for (let first = from; first > 1; ) {
    const last = first - 1;
    first = Math.max(1, first - 100);
    const told = await ask("turns", { session, first, count: last - first + 1 });
    if (state.session !== session) return;
    windows = told.windows.concat(windows);
    unreported = told.unreported.concat(unreported);
    sidebar.show(session, windows, unreported);
    sidebar.select(state.turn, state.step);
  }
  if (from > 1 && state.view === "session") show();
}

async function follow() {
  const wanted = readAddress();
  const number = (shown += 1);
  under += 1;
  try {
    if (wanted.session === null) {
      if (sidebar.sessions.length) go.to({ session: sidebar.sessions[0].id });
      else empty();
      return;
    }
    if (wanted.session !== state.session || !windows.length) {
      Object.assign(state, wanted, { turn: null });
      loading(wanted.session);
      await loadSession(wanted.session);
      if (number !== shown) return;
    }
    Object.assign(state, wanted);
    if (!windows.length) {
      drawTop();
      sidebar.show(state.session, windows, unreported);
      fill(stage, h("h1", {}, "No windows"), h("p", { class: "note" }, "No report of this session is kept. An App keeps them unless keep_reports=0; sessions that were only imported or appended to have none."));
      return;
    }
    const turn = windows.filter((each) => each.turn === state.turn);
    const at = turn.find((each) => each.step === state.step) ?? turn.at(-1) ?? windows.at(-1);
    state.turn = at.turn;
    state.step = at.step;
    live = at === windows.at(-1) && state.budget === null;
    sidebar.select(state.turn, state.step);
    await show(number);
  } catch (error) {
    problem(error);
  } finally {
    under -= 1;
  }
}

async function show(number = (shown += 1)) {
  drawTop();
  try {
    const about = windows.find((each) => each.turn === state.turn && each.step === state.step);
    await views[state.view].show(state, state.view === "window" ? about : windows);
    if (number === shown) document.title = `${state.session} ${state.turn}.${state.step} – Muntin`;
  } catch (error) {
    problem(error);
  }
}

// Nothing is shown as 0 that is not known yet.
function loading(session) {
  fill(bar, h("span", { class: "crumb" }, h("b", {}, session)));
  fill(stage, h("p", { class: "muted", "data-loading": true, role: "status" }, "Loading …"));
  sidebar.wait(session);
}

function problem(error) {
  if (aborted(error)) return;
  if (!windows.length) $("turns-title").textContent = "No windows";
  fill(stage, h("h1", {}, "This cannot be shown"), h("p", { class: "note bad", role: "alert" }, sentence(error.message)));
}

function empty() {
  fill(bar);
  $("turns-title").textContent = "No windows yet";
  fill(stage, h("div", { class: "welcome" }, h("h1", {}, "Nothing to see yet"), h("p", { class: "muted" }, "This store has no sessions. They appear here as soon as an App uses the store. Or look at the store that muntin demo writes.")));
}

function drawTop() {
  const place = windows.findIndex((each) => each.turn === state.turn && each.step === state.step);
  const step = (by, label, text) => {
    const each = windows[place + by];
    return h("button", { class: "ghost", disabled: !each, "aria-label": label, title: label, onclick: () => move(by) }, text);
  };
  fill(
    bar,
    h("span", { class: "crumb" }, h("b", {}, state.session), place >= 0 ? h("span", { class: "muted" }, ` · window ${num(place + 1)} of ${num(windows.length)}`) : null),
    h("button", { class: "ghost live", id: "live", "aria-pressed": String(live), title: "Show new windows as they come", onclick: follows }, h("i", { class: "beat", "aria-hidden": "true" }), "Live"),
    h("div", { class: "views", role: "group", "aria-label": "View" }, Object.entries(VIEWS).map(([name, label]) => h("button", { "aria-pressed": String(name === state.view), "data-view": name, onclick: () => go.to({ ...state, view: name, budget: null, other: null }) }, label))),
    h("div", { class: "steps" }, step(-1, "the window before (←)", "←"), step(1, "the window after (→)", "→")),
  );
}

function follows() {
  live = !live;
  const last = windows.at(-1);
  if (live && last && (last.turn !== state.turn || last.step !== state.step || state.budget !== null)) go.to({ session: state.session, turn: last.turn, step: last.step, view: state.view });
  else drawTop();
}

function move(by) {
  const place = windows.findIndex((each) => each.turn === state.turn && each.step === state.step);
  const each = windows[place + by];
  if (each) go.to({ session: state.session, turn: each.turn, step: each.step, view: state.view });
}

const KEYS = {
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  1: () => go.to({ ...state, view: "window", other: null }),
  2: () => go.to({ ...state, view: "compare", budget: null }),
  3: () => go.to({ ...state, view: "session", budget: null, other: null }),
  "[": () => state.view === "window" && views.window.nudge(-0.05),
  "]": () => state.view === "window" && views.window.nudge(0.05),
  0: () => state.view === "window" && views.window.plan(views.window.own.own_budget),
  l: follows,
  "/": () => {
    $("side").classList.add("open");
    $("search").focus();
  },
  "?": () => $("help").showModal(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  if (event.target.closest("input, select, textarea")) return;
  const act = KEYS[event.key];
  if (!act || state.session === null) return;
  event.preventDefault();
  act();
});
$("skip").addEventListener("click", () => $("main").focus());
$("help-open").addEventListener("click", () => $("help").showModal());
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") event.target.blur();
  if (event.key === "ArrowDown") $("sessions").querySelector("a")?.focus();
});
$("side-open").addEventListener("click", () => {
  const open = $("side").classList.toggle("open");
  $("side-open").setAttribute("aria-expanded", String(open));
});
addEventListener("hashchange", () => {
  $("side").classList.remove("open");
  $("side-open").setAttribute("aria-expanded", "false");
  follow();
});

// What came since: new windows of the session that is looked at, and new sessions.
async function news() {
  if (document.hidden || under || asking || Date.now() < rested) return;
  asking = true;
  const begun = Date.now();
  try {
    await look();
    gone.hidden = true;
  } catch (error) {
    unanswered(error);
  } finally {
    asking = false;
    rested = Date.now() + REST * (Date.now() - begun);
  }
}

async function look() {
  if (Date.now() - listed > SESSIONS || state.session === null) await newSessions();
  if (state.session === null) return sidebar.sessions.length ? follow() : null;
  if (!windows.length) {
    const first = await ask("turns", { session: state.session }, "news");
    return first.windows.length ? follow() : null;
  }
  const last = windows.at(-1);
  const step = Math.max(1, last.step - 1); // whose result may have come
  const told = await ask("turns", { session: state.session, first: last.turn, step }, "news");
  if (told.id !== state.session) return;
  const fresh = told.windows.filter((each) => !windows.some((one) => one.turn === each.turn && one.step === each.step));
  const known = new Map(told.windows.map((each) => [`${each.turn}.${each.step}`, each]));
  const changed = windows.some((each) => known.has(`${each.turn}.${each.step}`) && JSON.stringify(each) !== JSON.stringify(known.get(`${each.turn}.${each.step}`)));
  if (!fresh.length && !changed) return;
  windows = windows.map((each) => known.get(`${each.turn}.${each.step}`) ?? each).concat(fresh);
  sidebar.show(state.session, windows, unreported);
  sidebar.select(state.turn, state.step);
  const newest = windows.at(-1);
  const here = state.turn === newest.turn && state.step === newest.step;
  if (live && fresh.length && state.view !== "compare") {
    history.replaceState(null, "", go.link({ ...state, turn: newest.turn, step: newest.step }));
    follow();
  } else if (here && changed && state.budget === null) show();
  else drawTop();
  if (fresh.length) $("status").textContent = `${many(fresh.length, "new window")}.`;
}

// What is shown stays: it was true when it was asked for.
function unanswered(error) {
  if (aborted(error)) return;
  gone.textContent = error.message;
  gone.hidden = false;
}

// Questions that nobody waits for.
addEventListener("unhandledrejection", (event) => {
  if (!aborted(event.reason) && !(event.reason instanceof Refused)) return;
  event.preventDefault();
  unanswered(event.reason);
});

async function newSessions() {
  listed = Date.now();
  if ($("search").value.trim() === "") await sidebar.load();
}
setInterval(news, NEWS);

try {
  await sidebar.load();
  await follow();
} catch (error) {
  problem(error);
}
