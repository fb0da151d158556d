// Making elements and words. Whatever is shown goes in as text: nothing here reads markup.

export function h(tag, props = {}, ...children) {
  const svg = ["svg", "path", "line", "g", "rect", "text", "title"].includes(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") {
      for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
    } else if (name === "value" || name === "checked" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

export const $ = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en-US");
export const num = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const percent = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "–");
export const many = (count, what) => `${num(count)} ${what}${count === 1 ? "" : "s"}`;

export function money(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && value < 0.0001) return "<$0.0001";
  return `$${value.toFixed(value < 0.01 ? 5 : value < 1 ? 4 : 2)}`;
}

export function when(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime())
    ? ""
    : time.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function ago(text) {
  const minutes = (Date.now() - new Date(text).getTime()) / 60000;
  if (!(minutes >= 0)) return "";
  if (minutes < 1) return "now";
  if (minutes < 60) return `${Math.floor(minutes)} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h`;
  return `${Math.floor(minutes / 1440)} d`;
}

// What the server says, as a sentence.
export const sentence = (text) => `${text.replace(/^[a-z]+ /, (word) => word.charAt(0).toUpperCase() + word.slice(1))}${/[.!?]$/.test(text) ? "" : "."}`;

export function say(text) {
  $("status").textContent = text;
}

// One colour a name, the same in every turn of a session; when all are taken, with stripes.
const colours = new Map();
const FEW = 10;
const PATTERNS = 4;
const ours = new Set(["(tools)", "(joined)", "(lead)", "(answer)", "(provider)", "free"]);

// What the provider adds to the counted tokens; older reports do not say it.
export const providerTokens = ({ counts }) => (counts ? counts.estimated - counts.counted : 0);

export function colour(name) {
  if (name === null || name === undefined || ours.has(name)) return "plain";
  const group = groupOf(name);
  if (!colours.has(group)) colours.set(group, colours.size);
  const number = colours.get(group);
  const pattern = Math.floor(number / FEW) % PATTERNS;
  return `c${number % FEW}${pattern ? ` p${pattern}` : ""}`;
}

// Slots that are one of many have one name before a number: "doc 1", "doc/2", "doc-3" are "doc".
export const groupOf = (name) => name.replace(/[\s:/#._-]*\d+$/, "") || name;

export const forgetColours = () => colours.clear();
// A text that may turn the direction of writing does so only in itself.
export const bdi = (text) => h("bdi", {}, text);
export const dot = (name) => h("i", { class: `dot ${colour(name)}` });
