// Charts of the input history, the current outputs, and the winning class over time.

import { largest, softmax } from "./engine.js";
import { colour, element, Heat, sharp } from "./heat.js";

/** With more channels than this, the input is drawn as cells, not as lines. */
const MOST_LINES = 6;
/** If a channel moves by less than this share of the largest value, each channel gets its own scale. */
const FLAT = 0.02;
/** With more outputs than this, only the highest are shown. */
const MOST_BARS = 40;
const SHOWN = 12;

/** Distinct colours for many items. */
function paint(index) {
  return `oklch(${colour("--series")} ${(index * 137.5 + 235) % 360})`;
}

export class Scope {
  constructor(parent, engine) {
    Object.assign(this, { engine, scale: 1e-9 });
    const { channels, model, sound } = engine;
    if (channels > MOST_LINES) {
      this.heat = new Heat(parent, {
        title: `Input: ${channels} channels`,
        columns: engine.columns,
        rows: channels,
        kind: "signed",
        from: "",
        to: "now",
      });
      return;
    }
    const figure = element(parent, "figure");
    const what = model.tokens ? "tokens" : sound ? "sound" : `${channels} channel${channels > 1 ? "s" : ""}`;
    const named = engine.site.about.channels.join(", ");
    this.what = `Input: ${what}${named && `: ${named}`}`;
    this.caption = element(figure, "figcaption");
    this.caption.textContent = this.what;
    if (model.tokens) {
      this.tokens = element(figure, "p", "tokens");
      return;
    }
    this.canvas = element(figure, "canvas", "scope");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "The input over time");
  }

  recolour() {
    this.heat?.recolour();
  }

  draw() {
    const { low, high } = this.engine.history;
    if (this.heat) {
      this.heat.draw((column, row) => {
        const age = this.engine.columns - 1 - column;
        return age < low.held ? (low.data[low.at(age) + row] + high.data[high.at(age) + row]) / 2 : NaN;
      });
    } else if (this.tokens) {
      this._ticker();
    } else {
      this._lines(low, high);
    }
  }

  _ticker() {
    const { symbols } = this.engine.site.about;
    const recent = this.engine.recent(48);
    this.tokens.textContent = recent.map((id) => symbols[id] ?? id).join(" ");
  }

  _lines(low, high) {
    const { context, width, height } = sharp(this.canvas);
    const ends = Array.from({ length: low.width }, (_, channel) => reach(low, high, channel));
    const most = Math.max(1e-9, ...ends.flat().map(Math.abs));
    this.scale = Math.max(most, this.scale * 0.98);
    const moves = ends.map(([least, largest]) => largest - least).filter((range) => range > 0);
    const apart = ends.length > 1 && Math.min(...moves) < FLAT * most;
    const text = `${this.what}${apart ? ", each on its own scale" : ""}`;
    if (this.caption.textContent !== text) this.caption.textContent = text;
    context.strokeStyle = colour("--line");
    if (!apart) context.strokeRect(0, height / 2, width, 0);
    for (let channel = 0; channel < low.width; channel++) {
      const [middle, half] = apart ? centred(ends[channel]) : [0, this.scale];
      const y = (value) => height / 2 - ((value - middle) / half) * (height / 2 - 3);
      context.fillStyle = context.strokeStyle = paint(channel);
      context.lineWidth = 1.4;
      context.beginPath();
      for (let age = low.held - 1; age >= 0; age--) {
        const x = width * (1 - (age + 0.5) / this.engine.columns);
        const [top, bottom] = [y(high.data[high.at(age) + channel]), y(low.data[low.at(age) + channel])];
        context.lineTo(x, top);
        context.lineTo(x, bottom);
      }
      context.stroke();
    }
  }
}

/** The smallest and the largest value of a channel in the history. */
function reach(low, high, channel) {
  let [least, largest] = [Infinity, -Infinity];
  for (let age = 0; age < low.held; age++) {
    least = Math.min(least, low.data[low.at(age) + channel]);
    largest = Math.max(largest, high.data[high.at(age) + channel]);
  }
  return low.held ? [least, largest] : [0, 0];
}

function centred([least, largest]) {
  return [(least + largest) / 2, (largest - least) / 2 || 1];
}

export class Bars {
  constructor(parent, engine, labels) {
    Object.assign(this, { engine, labels, classes: engine.site.about.classes, most: 1e-9 });
    const count = engine.model.outputs <= MOST_BARS ? engine.model.outputs : SHOWN;
    this.list = element(parent, "ul", count > SHOWN ? "bars many" : "bars");
    const longest = Math.max(...labels.map((label) => label.length));
    this.list.style.setProperty("--names", `min(${longest + 1}ch, max(12ch, 30%))`);
    this.rows = Array.from({ length: count }, (_, index) => {
      const row = element(this.list, "li");
      const [name, track, number] = ["name", "track", "number"].map((part) => element(row, "span", part));
      const bar = element(track, "span", "bar");
      name.textContent = name.title = labels[index];
      return { row, name, bar, number };
    });
  }

  draw() {
    const values = this.classes ? softmax(this.engine.outputs) : Array.from(this.engine.outputs);
    this.most = Math.max(this.most, ...values.map(Math.abs));
    const order = values.map((_, index) => index);
    if (values.length > MOST_BARS) order.sort((a, b) => values[b] - values[a]);
    const best = this.classes ? largest(values) : -1;
    this.rows.forEach(({ row, name, bar, number }, place) => {
      const index = order[place];
      if (values.length > MOST_BARS) name.textContent = name.title = this.labels[index];
      row.classList.toggle("best", index === best);
      bar.style.background = paint(index);
      bar.style.transform = `scaleX(${this.classes ? values[index] : Math.abs(values[index]) / this.most})`;
      number.textContent = this.classes ? `${(100 * values[index]).toFixed(1)} %` : values[index].toPrecision(4);
    });
    return { best, value: values[Math.max(best, 0)] };
  }
}

/** The winning class, column by column, and below it, thinner, the true class of test data. */
export class Timeline {
  constructor(parent, engine, labels) {
    Object.assign(this, { engine, labels, scale: 1e-9 });
    this.classes = engine.site.about.classes;
    const figure = element(parent, "figure");
    this.known = engine.site.examples.some(({ label }) => label !== null);
    const below = this.known ? "; below it, the true class of test data" : "";
    const title = this.classes ? `Winning class over time${below}` : "Outputs over time";
    element(figure, "figcaption").textContent = title;
    this.canvas = element(figure, "canvas", "timeline");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    const axis = element(figure, "div", "axis");
    this.span = element(axis, "span");
    element(axis, "span").textContent = "now";
  }

  draw() {
    const frame = sharp(this.canvas);
    const held = this.engine.history.outputs.held;
    if (this.classes) this._ribbon(frame, held);
    else this._lines(frame, held);
  }

  _ribbon({ context, width, height }, held) {
    const { outputs, truth, begun } = this.engine.history;
    const cell = width / this.engine.columns;
    const tall = this.known ? height * 0.66 : height;
    context.textBaseline = "middle";
    context.font = "600 13px system-ui, sans-serif";
    const winners = Array.from({ length: held }, (_, index) => largest(outputs.row(held - 1 - index)));
    const truths = Array.from({ length: held }, (_, index) => truth.row(held - 1 - index)[0]);
    const left = width - held * cell;
    const run = (values, top, deep) => {
      for (let begin = 0, end; begin < held; begin = end) {
        for (end = begin; end < held && values[end] === values[begin]; end++);
        if (values[begin] < 0) continue;
        const [x, wide] = [left + begin * cell, (end - begin) * cell];
        context.fillStyle = paint(values[begin]);
        context.fillRect(x, top, wide + 0.5, deep);
        const name = this.labels[values[begin]];
        if (deep > 16 && context.measureText(name).width + 8 < wide) {
          context.fillStyle = colour("--on-series");
          context.fillText(name, x + 5, top + deep / 2);
        }
      }
    };
    run(winners, 0, tall);
    if (this.known) run(truths, tall + 3, height - tall - 3);
    context.fillStyle = colour("--mark");
    for (let age = 0; age < held; age++) {
      if (begun.row(age)[0]) context.fillRect(width - (age + 1) * cell - 0.75, 0, 1.5, height);
    }
  }

  _lines({ context, width, height }, held) {
    const { outputs } = this.engine.history;
    const most = outputs.data.reduce((top, value) => Math.max(top, Math.abs(value)), 1e-9);
    for (let channel = 0; channel < outputs.width; channel++) {
      context.strokeStyle = paint(channel);
      context.lineWidth = 1.4;
      context.beginPath();
      for (let age = held - 1; age >= 0; age--) {
        const value = outputs.data[outputs.at(age) + channel];
        context.lineTo(width * (1 - (age + 0.5) / this.engine.columns), height / 2 - (value / most) * (height / 2 - 3));
      }
      context.stroke();
    }
  }
}
