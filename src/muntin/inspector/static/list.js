// A list of many rows of one height, of which only those in sight exist.

import { h } from "./dom.js";

export class Rows {
  constructor(element, height, draw) {
    this.element = element;
    this.height = height;
    this.draw = draw;
    this.count = 0;
    this.space = h("div", { class: "space" });
    element.replaceChildren(this.space);
    this.shown = new Map();
    this.held = null;
    element.addEventListener("scroll", () => this.paint(), { passive: true });
    element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.paint()).observe(element);
  }

  set(count) {
    this.count = count;
    this.space.style.setProperty("height", `${count * this.height}px`);
    this.clear();
    this.paint();
  }

  // Rows that are drawn anew keep the focus: lists change while a program runs.
  clear() {
    if (this.space.contains(document.activeElement)) this.held = document.activeElement.getAttribute("href");
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
  }

  paint() {
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor(top / this.height) - 5);
    const last = Math.min(
      this.count,
      Math.ceil((top + this.element.clientHeight) / this.height) + 5,
    );
    for (const [place, row] of this.shown) {
      if ((place < first || place >= last) && row !== document.activeElement) {
        row.remove();
        this.shown.delete(place);
      }
    }
    for (let place = first; place < last; place += 1) {
      if (this.shown.has(place)) continue;
      const row = this.draw(place);
      row.dataset.row = place;
      row.style.setProperty("top", `${place * this.height}px`);
      this.shown.set(place, row);
      this.space.append(row);
    }
    const rows = [...this.shown.values()];
    const held = this.held === null ? null : rows.find((row) => row.getAttribute("href") === this.held);
    if (held) {
      if (document.activeElement === document.body) held.focus({ preventScroll: true });
      this.held = null;
    }
    // Tab stops once at a list; the arrow keys move inside.
    const stop = rows.find((row) => row === document.activeElement || row.ariaCurrent) ?? rows[0];
    for (const row of rows) row.tabIndex = row === stop ? 0 : -1;
  }

  reveal(place) {
    const top = place * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) {
      this.element.scrollTop = top + this.height - clientHeight;
    }
    this.paint();
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("[data-row]");
    if (!step || !row) return;
    const place = Number(row.dataset.row) + step;
    if (place < 0 || place >= this.count) return;
    event.preventDefault();
    event.stopPropagation();
    this.reveal(place);
    this.shown.get(place)?.focus();
  }
}
