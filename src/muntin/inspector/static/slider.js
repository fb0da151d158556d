// The budget on a logarithmic scale: as far from 1,000 to 2,000 as from 100,000 to 200,000.

import { h, num } from "./dom.js";

const STEPS = 1000;
const LEAST = 50;

export function scale(most) {
  const low = Math.log(Math.min(LEAST, most));
  const high = Math.log(Math.max(most, LEAST + 1));
  return {
    place: (budget) => Math.round((STEPS * (Math.log(Math.max(budget, Math.exp(low))) - low)) / (high - low)),
    budget: (place) => {
      const exact = Math.exp(low + ((high - low) * place) / STEPS);
      const step = 10 ** Math.max(0, Math.floor(Math.log10(exact)) - 2); // three digits are enough
      return Math.round(exact / step) * step;
    },
  };
}

export class Slider {
  constructor({ own, most, set }) {
    this.own = own;
    this.scale = scale(most);
    const chosen = (value) => set(Math.max(0, Math.min(100_000_000, Math.round(value))));
    this.range = h("input", {
      type: "range", id: "budget", min: 0, max: STEPS, step: 1, value: this.scale.place(own),
      "aria-label": "Budget, on a logarithmic scale",
      oninput: (event) => {
        const place = Number(event.target.value);
        chosen(place === this.scale.place(own) ? own : this.scale.budget(place));
      },
    });
    this.number = h("input", {
      type: "number", id: "budget-number", min: 0, max: 100_000_000, value: own,
      "aria-label": "Budget in tokens",
      onchange: (event) => event.target.value !== "" && chosen(Number(event.target.value)),
    });
    this.reset = h("button", { id: "budget-reset", class: "ghost", disabled: true, onclick: () => chosen(own) }, "As sent");
    const ends = [LEAST, own, most].map((each) => this.scale.place(each));
    this.element = h(
      "div",
      { class: "whatif" },
      h("label", { for: "budget-number" }, "What if the budget were"),
      h("span", { class: "slide" }, this.range, h("span", { class: "ticks", "aria-hidden": "true" }, this.ticks(most), h("i", { class: "own", title: "as sent", style: { left: `${ends[1] / 10}%` } }))),
      this.number,
      h("span", { class: "muted" }, "tokens"),
      this.reset,
    );
    this.show(own);
  }

  ticks(most) {
    const found = [];
    for (let each = 100; each < most; each *= 10) {
      const place = this.scale.place(each) / 10;
      if (place > 3 && place < 97) found.push(h("small", { style: { left: `${place}%` } }, each >= 1e6 ? `${each / 1e6}M` : each >= 1000 ? `${each / 1000}k` : String(each)));
    }
    return found;
  }

  show(budget) {
    this.range.value = this.scale.place(budget);
    this.range.setAttribute("aria-valuetext", `${num(budget)} tokens`);
    this.number.value = budget;
    this.reset.disabled = budget === this.own;
  }
}
