// A chart over the windows of a session: one column each. One path a slot, however many there are.

import { colour, h, money, num, providerTokens } from "./dom.js";

const WIDE = 1000;

export function chart({ windows, kind, values = null, at, pick, open }) {
  const high = kind === "slots" ? 220 : 90;
  const step = WIDE / windows.length;
  const gap = step > 6 ? 1 : step > 3 ? 0.4 : 0;
  const about = { slots: "tokens by slot", share: "share that begins like the window before", cost: "cost of the input" }[kind];
  const most = kind === "share" ? 1 : kind === "cost" ? Math.max(1e-9, ...values.filter((each) => each !== null)) : Math.max(1, ...windows.map((each) => Math.max(each.tokens, Math.min(each.budget, each.tokens * 1.6))));
  const box = (n, low, size) => {
    const x = n * step + gap / 2;
    const y = high - ((low + size) / most) * high;
    return `M${x.toFixed(2)} ${y.toFixed(2)}h${(step - gap).toFixed(2)}v${((size / most) * high).toFixed(2)}h-${(step - gap).toFixed(2)}z`;
  };
  const paths = kind === "slots" ? stacked(windows, box) : [h("path", { class: kind, d: values.map((each, n) => (each ? box(n, 0, each) : "")).join("") })];
  const line = kind === "slots" ? [h("path", { class: "limit", d: windows.map((each, n) => `M${(n * step).toFixed(2)} ${Math.max(0, high - (each.budget / most) * high).toFixed(2)}h${step.toFixed(2)}`).join("") })] : [];
  const cursor = h("rect", { class: "cursor", y: 0, height: high, width: Math.max(step, 2), x: Math.max(0, at) * step });
  let place = at < 0 ? windows.length - 1 : at;
  const move = (n) => {
    place = Math.max(0, Math.min(windows.length - 1, n));
    cursor.setAttribute("x", place * step);
    pick(place);
  };
  const svg = h(
    "svg",
    { viewBox: `0 0 ${WIDE} ${high}`, preserveAspectRatio: "none", class: `chart ${kind}`, "data-chart": kind, "data-columns": windows.length, role: "application", tabindex: 0, "aria-label": `${about} over ${windows.length} windows; arrow keys move, Enter opens` },
    cursor, paths, line,
  );
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    move(Math.floor(((event.clientX - area.left) / area.width) * windows.length));
  });
  svg.addEventListener("click", () => open(place));
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (by) move(place + by);
    else if (event.key === "Enter") open(place);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const top = kind === "share" ? "100 %" : kind === "cost" ? money(most) : num(Math.round(most));
  return h("figure", { class: "plot" }, h("span", { class: "axis muted" }, top), svg, h("figcaption", { class: "muted" }, ends(windows).map((text) => h("span", {}, text))));
}

// Where the chart begins and ends: in turns, or in steps of the one turn there is.
function ends(windows) {
  const [first, last] = [windows[0], windows.at(-1)];
  const step = first.turn === last.turn && windows.length > 1;
  return [first, last].map((each) => `turn ${num(each.turn)}${step ? `, step ${num(each.step)}` : ""}`);
}

function stacked(windows, box) {
  const paths = new Map();
  windows.forEach((each, n) => {
    let low = 0;
    const add = (name, tokens) => {
      if (tokens <= 0) return;
      const key = colour(name).replace(" ", "-");
      paths.set(key, (paths.get(key) ?? "") + box(n, low, tokens));
      low += tokens;
    };
    add("(tools)", each.tools_tokens);
    for (const slot of each.slots) add(slot.name, slot.tokens_kept);
    add("(joined)", each.joined_tokens + each.lead_tokens + (each.answer_tokens ?? 0) + providerTokens(each));
  });
  return [...paths].map(([name, d]) => h("path", { class: `fill ${name.replace("-", " ")}`, d }));
}
