// Runs the model one sample at a time and keeps what the page shows: views of the state in the module's memory, and a
// history with one column per `stride` steps.

import { Model } from "./model.js";

/** Seconds of history, and limits on its number of columns. */
const SECONDS = 8;
const [LEAST_COLUMNS, MOST_COLUMNS] = [60, 240];
/** Steps per second if the rate is unknown. */
const PACE = 20;
/** The most steps that `record` returns; fewer if steps have many numbers. */
const RECORDED = 4096;
const RECORDED_NUMBERS = 1 << 20;
const TYPES = {
  float32: Float32Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  uint16: Uint16Array,
};

/** A ring buffer of the last rows that were pushed, `width` numbers each. */
export class Ring {
  constructor(width, length) {
    this.width = width;
    this.length = length;
    this.data = new Float32Array(width * length);
    this.count = 0;
  }

  push(values) {
    this.data.set(values, (this.count++ % this.length) * this.width);
  }

  /** The number of rows it holds. */
  get held() {
    return Math.min(this.count, this.length);
  }

  /** The start of the row of `age` in `data`; age 0 is the newest. */
  at(age) {
    return ((this.count - 1 - age) % this.length) * this.width;
  }

  row(age) {
    return this.data.subarray(this.at(age), this.at(age) + this.width);
  }
}

/** A view of numbers in a state, read as the real numbers that they stand for. */
class View {
  constructor(state, { offset, shape, type, exponent }) {
    const size = shape.reduce((product, side) => product * side, 1);
    this.raw = new TYPES[type](state.buffer, state.byteOffset + offset, size);
    this.shape = shape;
    this.unit = 2 ** -exponent;
  }

  /** All numbers in a new array. */
  read() {
    return Float32Array.from(this.raw, (number) => number * this.unit);
  }
}

/** A delay line: a ring buffer of rows in the module's memory; `at` is the newest row. */
class Line extends View {
  constructor(state, facts) {
    super(state, facts);
    this._at = new Uint16Array(state.buffer, state.byteOffset + facts.at, 1);
    [this.rows, this.channels = 1] = facts.shape;
  }

  /** The start of the row of a lag in `raw`. */
  begin(lag) {
    return ((this._at[0] - lag + this.rows) % this.rows) * this.channels;
  }

  /** Rows by lag, newest first; for tokens, null where there has been none yet. */
  byLag() {
    const all = this.read();
    const shown = this.raw instanceof Uint16Array ? (one) => (one ? one - 1 : null) : (one) => one;
    return Array.from({ length: this.rows }, (_, lag) => {
      const begin = this.begin(lag);
      return Array.from(all.subarray(begin, begin + this.channels), shown);
    });
  }
}

export class Engine {
  /** Loads what `site` describes. */
  static async load(site) {
    const [model, twin] = await Promise.all([
      Model.load("model.wasm", { streams: 2 }), // the second stream is for the stopwatch
      site.twin.length ? Model.load("gates.wasm") : null,
    ]);
    return new Engine(site, model, twin);
  }

  constructor(site, model, twin) {
    const apart = model.stateBytes - site.state_end;
    if (apart < 0 || apart >= 16) {
      throw new Error(`the module's state has ${model.stateBytes} bytes, its description ${site.state_end}`);
    }
    this.site = site;
    this.model = model;
    this.twin = twin;
    this.stride = 1;
    this.steps = 0;
    this.sound = site.about.samples_per_second !== null;
    this.outputs = new Float32Array(model.outputs);
    const { samples_per_second: samples, steps_per_second: steps, frame, window } = site.about;
    /** Successive samples per step, and channels per sample. */
    this.frame = this.sound ? model.inputs : frame;
    this.channels = model.tokens ? 1 : model.inputs / this.frame;
    /** Steps after which the stream restarts, if the model was trained on pieces of that length. */
    this.window = window === null ? Infinity : Math.floor(window / frame);

    const rate = samples === null ? steps : samples / model.inputs;
    /** Steps per second, and whether that rate is known. */
    this.rate = rate ?? PACE;
    this.known = rate !== null;
    this.columns = Math.round(Math.max(LEAST_COLUMNS, Math.min(MOST_COLUMNS, SECONDS * this.rate)));

    const state = model.state();
    this.layers = site.layers.map((layer) => ({
      line: layer.line && new Line(state, layer.line),
      hidden: layer.hidden && new View(state, layer.hidden),
      gates: layer.gates && twin ? new View(twin.state(), layer.gates) : undefined,
    }));
    const kept = (width) => new Ring(width, this.columns);
    this.history = {
      low: kept(this.channels),
      high: kept(this.channels),
      outputs: kept(model.outputs),
      begun: kept(1),
      truth: kept(1),
      hidden: this.layers.map(({ hidden }) => hidden && kept(hidden.raw.length)),
      gates: this.layers.map(({ gates }) => gates && kept(gates.raw.length)),
    };
    const wide = (model.tokens ? 1 : model.inputs) + model.outputs;
    const recorded = Math.max(1, Math.min(RECORDED, Math.floor(RECORDED_NUMBERS / wide)));
    this._inputs = new Ring(model.tokens ? 1 : model.inputs, recorded);
    this._outputs = new Ring(model.outputs, recorded);
    this._begins = new Ring(1, recorded);
    this._clearColumn();
    this.reset();
  }

  /** Restarts the stream; the history stays on the page. */
  reset() {
    this.model.reset(0);
    this.since = 0;
    this.truth = -1;
    this._fresh = true;
  }

  /** Runs one step. `x`: channels or a token; `truth`: its class, if known; `close` ends the column. */
  step(x, { truth = -1, close = false } = {}) {
    const closing = close || this._inColumn + 1 >= this.stride;
    if (closing && this.twin) this._lend();
    this.outputs = this.model.step(x);
    if (closing && this.twin) this._mirror();
    this._note(x);
    this.steps++;
    this.since++;
    this._inColumn++;
    this.truth = truth;
    if (closing) this._close();
    this._fresh = false;
  }

  /** Before a step, the twin takes over the model's state … */
  _lend() {
    const [from, to] = [this.model.state(), this.twin.state()];
    for (const [source, target, bytes] of this.site.twin) to.set(from.subarray(source, source + bytes), target);
  }

  /** … and then runs the same step: its outputs equal the model's, and its gates can be read. */
  _mirror() {
    this.twin.input.set(this.model.input);
    this.twin.advance();
    if (this.twin.output.some((value, index) => !Object.is(value, this.model.output[index]))) {
      throw new Error(`step ${this.steps}: the twin that shows the gates gives different outputs from the model`);
    }
  }

  _note(x) {
    const values = this.model.tokens ? [x] : x;
    this._inputs.push(values);
    this._outputs.push(this.outputs);
    this._begins.push([this._fresh ? 1 : 0]);
    this._begun ||= this._fresh;
    const { low, high } = this;
    for (let i = 0; i < values.length; i++) {
      const channel = i % this.channels;
      low[channel] = Math.min(low[channel], values[i]);
      high[channel] = Math.max(high[channel], values[i]);
    }
  }

  _close() {
    const { history } = this;
    history.low.push(this.low);
    history.high.push(this.high);
    history.outputs.push(this.outputs);
    history.begun.push([this._begun ? 1 : 0]);
    history.truth.push([this.truth]);
    this.layers.forEach(({ hidden, gates }, index) => {
      if (hidden) history.hidden[index].push(hidden.read());
      if (gates) history.gates[index].push(gates.read().map(sigmoid));
    });
    this._clearColumn();
  }

  _clearColumn() {
    this._inColumn = 0;
    this._begun = false;
    this.low = new Float32Array(this.channels).fill(Infinity);
    this.high = new Float32Array(this.channels).fill(-Infinity);
  }

  /** The first number of each of the last inputs, oldest first. */
  recent(count) {
    const held = Math.min(count, this._inputs.held);
    return Array.from({ length: held }, (_, index) => this._inputs.row(held - 1 - index)[0]);
  }

  /** Recent inputs and outputs, oldest first; `begins`: steps at which the stream had restarted. */
  record() {
    const ages = Array.from({ length: this._inputs.held }, (_, index) => this._inputs.held - 1 - index);
    const rows = (ring) => ages.map((age) => Array.from(ring.row(age)));
    const first = this.steps - ages.length;
    const begins = rows(this._begins).flatMap(([begun], index) => (begun ? [first + index] : []));
    return { first, inputs: rows(this._inputs), outputs: rows(this._outputs), begins };
  }

  /** Every layer's current state, and its gates at the end of the last column. */
  inside() {
    return this.layers.map(({ line, hidden }, index) => {
      const gates = this.history.gates[index];
      return {
        line: line && line.byLag(),
        hidden: hidden && Array.from(hidden.read()),
        gates: gates && gates.count ? Array.from(gates.row(0)) : undefined,
      };
    });
  }
}

/** Times steps of the model on a separate stream, many at once because clocks are coarse. */
export class Stopwatch {
  constructor(model) {
    this.model = model;
    this.batch = 16;
    this.times = [];
  }

  /** Microseconds per step: the median of the last measurements, each of about `least` milliseconds. */
  measure(least = 2) {
    for (;;) {
      const begin = performance.now();
      for (let i = 0; i < this.batch; i++) this.model.advance(1);
      const taken = performance.now() - begin;
      if (taken >= least) {
        this.times.push((1000 * taken) / this.batch);
        this.batch = Math.max(1, Math.ceil((this.batch * least * 1.2) / taken));
        break;
      }
      this.batch *= 2;
    }
    this.times = this.times.slice(-15);
    return [...this.times].sort((a, b) => a - b)[this.times.length >> 1];
  }
}

export function softmax(logits) {
  const top = Math.max(...logits);
  const raised = Array.from(logits, (logit) => Math.exp(logit - top));
  const sum = raised.reduce((total, value) => total + value, 0);
  return raised.map((value) => value / sum);
}

export function largest(values) {
  return values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
}

function sigmoid(logit) {
  return 1 / (1 + Math.exp(-logit));
}
