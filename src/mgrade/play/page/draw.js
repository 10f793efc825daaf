// Signals drawn by hand: a canvas for pointer and arrow keys, ready-made shapes, and a line of text for tokens.

import { colour, element, sharp } from "./heat.js";

const SHAPES = {
  sine: (t, channel) => Math.sin(2 * Math.PI * (1 + (channel % 3)) * t + channel),
  square: (t, channel) => (((1 + (channel % 3)) * t) % 1 < 0.5 ? 1 : -1),
  pulse: (t, channel) => Math.exp(-((24 * (t - 0.2 - 0.05 * (channel % 12))) ** 2)),
  noise: () => 2 * Math.random() - 1,
  silence: () => 0,
};

/** The largest value of a drawing: models square values and sum them in float32. */
const LARGEST = 1e15;

export class Sketch {
  /** One channel of `points` for each of `names`, from -`limit` to `limit`. With `say`, which receives error messages,
   * the range can be set. */
  constructor(parent, names, points, limit, say) {
    Object.assign(this, { points, say, channel: 0, cursor: 0 });
    this.values = names.map(() => new Float32Array(points));
    this.ranges = this.values.map(() => [-limit, limit]);
    this.values.forEach((_, channel) => this._fill("sine", channel, 0.6));
    const controls = element(parent, "div", "controls");
    if (names.length > 1) this._chooser(controls, names);
    if (say) this._ends(controls);
    for (const name of Object.keys(SHAPES)) {
      const button = element(controls, "button", "small");
      button.type = "button";
      button.textContent = name;
      button.onclick = () => {
        this._fill(name, this.channel, 0.8);
        this.draw();
      };
    }
    this.canvas = element(parent, "canvas", "sketch");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "The signal: draw with a pointer, or with the arrow keys");
    this.canvas.onpointerdown = (event) => this._begin(event);
    this.canvas.onpointermove = (event) => this._move(event);
    this.canvas.onpointerup = this.canvas.onpointercancel = () => (this._last = undefined);
    this.canvas.onkeydown = (event) => this._key(event);
    this.canvas.onfocus = this.canvas.onblur = () => this.draw();
  }

  _chooser(parent, names) {
    const label = element(parent, "label");
    label.textContent = "Channel ";
    const select = element(label, "select");
    names.forEach((name, channel) => select.add(new Option(name, channel)));
    select.onchange = () => {
      this.channel = Number(select.value);
      this.inputs?.forEach((input, end) => (input.value = this.ranges[this.channel][end]));
      this.say?.("");
      this.draw();
    };
  }

  /** Two inputs: the lowest and the highest value of the chosen channel, in the model's own units. */
  _ends(parent) {
    const pair = element(parent, "span", "range");
    this.inputs = ["From ", "to "].map((name, end) => {
      const label = element(pair, "label");
      label.textContent = name;
      const input = element(label, "input");
      Object.assign(input, { type: "number", step: "any", value: this.ranges[this.channel][end] });
      input.onchange = () => this._rescale(this.inputs.map((one) => one.valueAsNumber));
      return input;
    });
  }

  /** Changes the range of the chosen channel; its drawing keeps its shape. */
  _rescale([low, high]) {
    if (!(low < high && -low <= LARGEST && high <= LARGEST)) {
      return this.say(`A drawing goes from a number to a larger one, within ±${LARGEST.toExponential()}.`);
    }
    this.say("");
    const values = this.values[this.channel];
    const shares = values.map((value) => this._share(value, this.channel));
    this.ranges[this.channel] = [low, high];
    values.set(shares.map((share) => this._value(share, this.channel)));
    this.draw();
  }

  /** A value as a share of a channel's range, from -1 at its lower end to 1. */
  _share(value, channel) {
    const [low, high] = this.ranges[channel];
    return (2 * value - low - high) / (high - low);
  }

  _value(share, channel) {
    const [low, high] = this.ranges[channel];
    return (low + high + share * (high - low)) / 2;
  }

  _fill(shape, channel, size) {
    this.values[channel].forEach((_, t, values) => {
      values[t] = this._value(size * SHAPES[shape](t / this.points, channel), channel);
    });
  }

  _begin(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this._last = undefined;
    this._move(event, true);
  }

  _move(event, begun = false) {
    if (!begun && this._last === undefined) return;
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const at = Math.max(0, Math.min(this.points - 1, Math.floor(((event.clientX - left) / width) * this.points)));
    const share = 1 - (2 * (event.clientY - top)) / height;
    const value = this._value(Math.max(-1, Math.min(1, share)), this.channel);
    const from = this._last ?? { at, value };
    const steps = Math.max(1, Math.abs(at - from.at));
    for (let k = 0; k <= steps; k++) {
      const place = Math.round(from.at + ((at - from.at) * k) / steps);
      this.values[this.channel][place] = from.value + ((value - from.value) * k) / steps;
    }
    this._last = { at, value };
    this.cursor = at;
    this.draw();
  }

  _key(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (!(event.key in arrows)) return;
    const [along, up] = arrows[event.key];
    event.preventDefault();
    this.cursor = (this.cursor + along + this.points) % this.points;
    const values = this.values[this.channel];
    const share = this._share(values[this.cursor], this.channel) + up / 10;
    values[this.cursor] = this._value(Math.max(-1, Math.min(1, share)), this.channel);
    this.draw();
  }

  draw() {
    const { context, width, height } = sharp(this.canvas);
    const x = (t) => ((t + 0.5) / this.points) * width;
    const y = (value, channel) => (0.5 - 0.5 * this._share(value, channel)) * (height - 8) + 4;
    context.fillStyle = colour("--line");
    context.fillRect(0, height / 2, width, 1);
    const path = (values, channel) => {
      context.beginPath();
      values.forEach((value, t) => context.lineTo(x(t), y(value, channel)));
      context.stroke();
    };
    context.strokeStyle = colour("--line");
    this.values.forEach((values, channel) => channel !== this.channel && path(values, channel));
    context.strokeStyle = colour("--accent");
    context.lineWidth = 2;
    path(this.values[this.channel], this.channel);
    if (document.activeElement === this.canvas) {
      context.beginPath();
      context.arc(x(this.cursor), y(this.values[this.channel][this.cursor], this.channel), 5, 0, 2 * Math.PI);
      context.stroke();
    }
  }
}

/** Tokens from text: one-letter symbols need no spaces; longer ones and numbers are separated by spaces. */
export function readTokens(text, symbols, count) {
  const letters = symbols.length > 0 && symbols.every((symbol) => symbol.length === 1);
  const words = letters ? Array.from(text.replace(/\s/g, "")) : text.split(/\s+/).filter(Boolean);
  if (words.length === 0) throw new Error("type at least one token");
  return words.map((word) => {
    const id = symbols.length ? symbols.indexOf(word) : /^\d+$/.test(word) ? Number(word) : -1;
    if (id < 0 || id >= count) {
      const known = symbols.length ? symbols.join(" ") : `a number from 0 to ${count - 1}`;
      throw new Error(`no token ${word}: it must be ${symbols.length ? "one of " : ""}${known}`);
    }
    return id;
  });
}
