// The states inside the model, layer by layer, and what the model costs.

import { Stopwatch } from "./engine.js";
import { element, Heat, LineHeat } from "./heat.js";

export class Inside {
  constructor(parent, engine) {
    this.lines = [];
    this.histories = [];
    engine.layers.forEach(({ line, hidden, gates }, index) => {
      const layer = element(parent, "div");
      element(layer, "h3").textContent = `Layer ${index + 1}`;
      const box = element(layer, "div", "layer");
      if (line) this.lines.push(new LineHeat(box, line, engine.site.layers[index].line));
      const { hidden: states, gates: opened } = engine.history;
      if (hidden) this._history(box, `Recurrent state: ${hidden.raw.length}`, "signed", states[index]);
      if (gates) this._history(box, `Gates: ${gates.raw.length}, from closed to open`, "unit", opened[index]);
    });
  }

  _history(box, title, kind, ring) {
    const heat = new Heat(box, { title, kind, columns: ring.length, rows: ring.width, from: "", to: "now" });
    this.histories.push([heat, ring]);
  }

  /** Redraws after a change of size or colours. */
  still() {
    for (const heat of [...this.lines, ...this.histories.map(([heat]) => heat)]) heat.recolour();
    for (const line of this.lines) line.still();
  }

  draw() {
    for (const line of this.lines) line.show();
    for (const [heat, ring] of this.histories) {
      heat.draw((column, row) => {
        const age = ring.length - 1 - column;
        return age < ring.held ? ring.data[ring.at(age) + row] : NaN;
      });
    }
  }
}

/** Milliseconds between two measurements. */
const PERIOD = 400;

export class Cost {
  constructor(parent, engine) {
    this.engine = engine;
    this.stopwatch = new Stopwatch(engine.model);
    this.timed = -Infinity;
    const names = ["State of a stream", "Weights", "Module", "Time per step", "Share of real time", "Steps"];
    [this.state, this.weights, this.module, this.step, this.share, this.steps] = names.map((name) => {
      const pair = element(parent, "div");
      element(pair, "dt").textContent = name;
      return element(pair, "dd");
    });
    const { weight_bytes: weights, module_bytes: module, code_bytes: code } = engine.site;
    this.state.textContent = `${grouped(engine.model.stateBytes)} B`;
    this.weights.textContent = `${grouped(weights)} B`;
    this.module.textContent = `${grouped(module)} B, of which ${grouped(code)} are code`;
  }

  /** Times a step now and then. */
  measure(now) {
    if (now - this.timed < PERIOD) return;
    this.timed = now;
    const micros = this.stopwatch.measure();
    const share = (micros * this.engine.rate) / 1e4;
    const slow = share > 100 ? ": too slow for it here" : "";
    this.step.textContent = `${micros.toPrecision(3)} µs`;
    this.share.textContent = this.engine.known ? `${Number(share.toPrecision(2))} %${slow}` : "–";
  }

  draw() {
    const { since, steps } = this.engine;
    this.steps.textContent = `${grouped(steps)}, ${grouped(since)} in this stream`;
  }
}

export function grouped(count) {
  return count.toLocaleString("en");
}
