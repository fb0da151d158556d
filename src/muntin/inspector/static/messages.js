// The messages as the model sees them, and between them, struck through, what was left out.

import { aborted, ask } from "./api.js";
import { bdi, colour, dot, fill, h, many, num } from "./dom.js";
import { level, reason } from "./words.js";

const PAGE = 100;
// From how many characters on a part that was cut is folded.
const CUT = 300;

export function messages(body, which, nameOf) {
  const list = h("div", { class: "messages", "data-budget": which.budget });
  const end = h("div", { class: "end muted" }, "…");
  const count = h("p", { class: "muted", "data-count": true });
  let next = 0;
  let total = Infinity;
  let busy = false;

  async function more() {
    if (busy || next >= total) return;
    busy = true;
    try {
      const told = await ask("messages", { ...which, offset: next, limit: PAGE, fold: 1 }, next ? null : "messages");
      next += told.lines.length;
      total = told.total;
      count.textContent = `${many(told.kept, "message")} in the window${told.every > told.kept ? `, ${num(told.every - told.kept)} left out` : ""}`;
      count.dataset.kept = told.kept;
      list.append(...told.lines.map((line) => draw(line, which, nameOf)));
      end.hidden = next >= total;
      if (!told.lines.length) total = next;
    } catch (error) {
      if (aborted(error)) return;
      total = next;
      fill(end, h("span", { class: "note" }, error.message));
    } finally {
      busy = false;
    }
    if (near(end)) more();
  }

  // Not an observer: it is silent while the end stays in sight, however much came in between.
  const main = document.getElementById("main");
  const scrolled = () => {
    if (!list.isConnected) for (const each of [main, window]) each.removeEventListener("scroll", scrolled);
    else if (near(end)) more();
  };
  // On a narrow screen the page scrolls, else the part.
  for (const each of [main, window]) each.addEventListener("scroll", scrolled, { passive: true });
  if (body.firstChild && body.dataset.kind === "messages") {
    // The old list stays until the new one is there: the page does not jump.
    const old = [...body.children];
    list.hidden = true;
    body.append(count, list, end);
    more().then(() => { old.forEach((each) => each.remove()); list.hidden = false; });
  } else {
    fill(body, count, list, end);
    more();
  }
  body.dataset.kind = "messages";
}

const near = (element) => element.isConnected && !element.hidden && element.getBoundingClientRect().top < innerHeight + 800;

function draw(line, which, nameOf) {
  return line.fold ? folded(line, which, nameOf) : message(line, which, nameOf);
}

function folded(line, which, nameOf) {
  const { slot, count, reason: why } = line.fold;
  const name = nameOf(slot);
  const inside = h("div", {});
  let next = line.line;
  const last = line.line + count;
  const button = h("button", { class: "ghost tiny", hidden: true, onclick: load }, "more");
  async function load() {
    const told = await ask("messages", { ...which, offset: next, limit: Math.min(PAGE, last - next) });
    next += told.lines.length;
    inside.append(...told.lines.map((each) => message(each, which, nameOf)));
    button.hidden = next >= last;
  }
  return h(
    "details",
    { class: `fold ${colour(name)}`, "data-fold": count, ontoggle: (event) => { if (event.target.open && next === line.line) load(); } },
    h("summary", {}, dot(name), `${many(count, "message")} left out of `, bdi(name), why ? h("span", { class: "muted" }, ` ${reason(why)}`) : null),
    inside,
    button,
  );
}

function message(line, which, nameOf) {
  const name = nameOf(line.slot);
  const out = line.place === null;
  const texts = [...line.pieces, ...line.calls.map((each) => each.arguments), ...line.notes.map((each) => each.text)];
  // Only a long one scrolls in itself: of thousands, each that does costs.
  const long = texts.reduce((sum, each) => sum + each.text.length + 60 * each.text.split("\n").length, 0) > 1500;
  const element = h("article", {
    class: `message ${colour(line.slot === null ? null : name)}${out ? " out" : ""}${long ? " long" : ""}`,
    "data-line": line.line, "data-place": line.place, "data-state": line.state, "data-role": line.role, tabindex: 0,
  });
  const hidden = texts.some((piece) => piece.hidden);
  fill(
    element,
    h(
      "header",
      {},
      h("b", { class: "role" }, line.role),
      h("span", {}, dot(line.slot === null ? null : name), bdi(line.slot === null ? "joined" : name)),
      line.name ? h("span", { class: "muted" }, line.name) : null,
      line.answers ? h("code", { class: "muted", title: "answers this call" }, line.answers) : null,
      line.state === "kept" ? null : h("span", { class: `status ${line.state}` }, line.state === "added" ? "added by Muntin" : level(line.state)),
      line.reason ? h("span", { class: "muted", title: line.reason }, reason(line.reason)) : null,
      h("span", { class: "n muted" }, line.tokens === null ? "" : `${num(line.tokens)} tokens`),
    ),
    line.pieces.length ? h("pre", {}, line.pieces.map((piece) => (folds(piece, line) ? foldedCut(piece, line, nameOf) : text(piece, nameOf)))) : null,
    line.calls.map((call) => h("pre", { class: "call" }, h("b", {}, `→ ${call.name}`), "(", text(call.arguments), ")")),
    line.notes.map((note) => h("pre", { class: "aside" }, h("b", {}, `${note.kind} `), text(note.text))),
    hidden && !which.longest
      ? h("button", { class: "ghost tiny", "data-more": true, onclick: async () => {
          const told = await ask("messages", { ...which, offset: line.line, limit: 1, longest: 400000 });
          element.replaceWith(message(told.lines[0], { ...which, longest: 400000 }, nameOf));
        } }, "Show more of it")
      : null,
  );
  return element;
}

// Beside what the model saw, what it did not see takes one line if it is long.
const folds = (piece, line) => piece.cut && piece.text.length > CUT && line.pieces.some((each) => !each.cut && each.text.trim());

function foldedCut(piece, line, nameOf) {
  const size = many(piece.text.length + (piece.hidden ?? 0), "character");
  const other = ["short", "stubbed"].includes(line.state); // all of it gave way to another text
  return h("details", { class: "cut" }, h("summary", {}, other ? `instead of ${size}` : `${size} left out`), text(piece, nameOf));
}

function text(piece, nameOf) {
  const note = piece.hidden ? h("em", { class: "muted", "data-hidden": piece.hidden }, `… ${num(piece.hidden)} more characters …`) : null;
  const inner = piece.end === "head" ? [note, piece.text] : [piece.text, note];
  const joined = piece.slot !== null && piece.slot !== undefined && nameOf;
  const title = joined ? nameOf(piece.slot) : null;
  const mark = joined ? `joined ${colour(title)}` : null;
  if (piece.cut) return h("del", { class: mark, title }, inner);
  return h("span", { class: mark, title }, inner);
}
