// Strips of coloured cells, one number each: from cold through neutral to warm, or from empty to full.

/** Rows or columns beyond these are subsampled to fit. */
const MOST_ROWS = 128;
const MOST_COLUMNS = 1024;
const HALF = 128;
/** An exponent that makes small numbers visible beside large ones. */
const CURVE = 0.6;

/** 256 colours interpolated from the style sheet, as canvas pixels; if signed, entry HALF is zero. */
function palette(names, signed) {
  const stops = names.map((name) => rgb(colour(name)));
  return Uint32Array.from({ length: 2 * HALF }, (_, index) => {
    const number = signed ? Math.max(-1, (index - HALF) / (HALF - 1)) : index / (2 * HALF - 1);
    const bent = Math.sign(number) * Math.abs(number) ** CURVE;
    const place = signed ? 1 + bent : number;
    const first = Math.min(Math.floor(place), stops.length - 2);
    const mix = stops[first].map((from, part) => Math.round(from + (stops[first + 1][part] - from) * (place - first)));
    return (255 << 24) | (mix[2] << 16) | (mix[1] << 8) | mix[0];
  });
}

/** A colour from the style sheet. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rgb(named) {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  context.fillStyle = named;
  context.fillRect(0, 0, 1, 1);
  return Array.from(context.getImageData(0, 0, 1, 1).data.slice(0, 3));
}

const PALETTES = { signed: ["--cold", "--cell", "--warm"], unit: ["--cell", "--gate"] };

export class Heat {
  /** A grid of columns x rows; `signed` numbers are scaled to the largest, `unit` numbers go from 0 to 1. */
  constructor(parent, { title, columns, rows, kind, from, to }) {
    Object.assign(this, { kind, columns, rows, scale: 1e-9 });
    this.across = Math.ceil(columns / MOST_COLUMNS);
    this.down = Math.ceil(rows / MOST_ROWS);
    const figure = element(parent, "figure", "heat");
    element(figure, "figcaption").textContent = title;
    this.box = element(figure, "div", "cells");
    this.canvas = element(this.box, "canvas");
    this.canvas.width = Math.ceil(columns / this.across);
    this.canvas.height = Math.ceil(rows / this.down);
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    this.box.style.height = `${Math.min(168, Math.max(20, this.canvas.height * 5))}px`;
    const axis = element(figure, "div", "axis");
    element(axis, "span").textContent = from;
    element(axis, "span").textContent = to;
    this.context = this.canvas.getContext("2d");
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.recolour();
  }

  recolour() {
    this.palette = palette(PALETTES[this.kind], this.kind === "signed");
  }

  /** value(column, row): columns run to the right, rows down. NaN leaves a cell empty. */
  draw(value) {
    const { canvas, pixels, palette: colours } = this;
    const none = this.kind === "signed" ? HALF : 0;
    const [factor, middle] = this.kind === "signed" ? [(HALF - 1) / this.scale, HALF] : [2 * HALF - 1, 0];
    let most = 0;
    for (let y = 0, at = 0; y < canvas.height; y++) {
      for (let x = 0; x < canvas.width; x++, at++) {
        const number = value(x * this.across, y * this.down);
        most = Math.max(most, Math.abs(number) || 0);
        const place = Math.max(0, Math.min(2 * HALF - 1, Math.round(middle + number * factor)));
        pixels[at] = colours[Number.isNaN(number) ? none : place];
      }
    }
    this.scale = Math.max(most, this.scale * 0.98, 1e-9);
    this.context.putImageData(this.image, 0, 0);
  }
}

/** A delay line: time runs right, up to now. Above it, the weight of the taps at each delay; in it, their places. */
export class LineHeat extends Heat {
  constructor(parent, line, facts) {
    const { rows, channels } = line;
    const what = facts.tokens ? "tokens" : `${channels} channel${channels > 1 ? "s" : ""}`;
    const rings = facts.taps.length ? "; rings: where taps read" : "";
    const title = `Delay line: ${what}, ${rows} step${rows > 1 ? "s" : ""}${rings}`;
    const from = rows === 2 ? "1 step ago" : `${rows - 1} steps ago`;
    super(parent, { title, columns: rows, rows: channels, kind: "signed", from, to: "now" });
    Object.assign(this, { line, facts });
    this.marks = element(this.box, "canvas", "marks");
    this.profile = document.createElement("canvas");
    this.profile.className = "profile";
    this.box.before(this.profile);
    this.profile.setAttribute("role", "img");
    this.profile.setAttribute("aria-label", "Weight of the taps at each delay");
  }

  show() {
    const { line } = this;
    const begins = Array.from({ length: line.rows }, (_, column) => line.begin(line.rows - 1 - column));
    this.draw((column, row) => line.raw[begins[column] + row] * line.unit);
  }

  /** Redraws the static parts after a change of size or colours. */
  still() {
    const { context, width, height } = sharp(this.marks);
    const cell = { x: width / this.line.rows, y: height / this.line.channels };
    const radius = Math.max(1, Math.min(3.5, cell.x / 3, cell.y / 2.2));
    context.strokeStyle = colour("--mark");
    context.lineWidth = Math.min(1.2, radius / 2);
    for (const [channel, lag] of this.facts.taps) {
      context.beginPath();
      context.arc((this.line.rows - 0.5 - lag) * cell.x, (channel + 0.5) * cell.y, radius, 0, 2 * Math.PI);
      context.stroke();
    }
    const profile = sharp(this.profile);
    profile.context.fillStyle = colour("--mark");
    this.facts.profile.forEach((share, lag) => {
      const tall = share * profile.height;
      const left = (this.line.rows - 1 - lag) * cell.x;
      profile.context.fillRect(left + cell.x * 0.1, profile.height - tall, Math.max(0.5, cell.x * 0.8), tall);
    });
  }
}

export function element(parent, kind, className = "") {
  const made = document.createElement(kind);
  made.className = className;
  parent.append(made);
  return made;
}

/** Clears a canvas and matches it to the resolution of the screen; sizes are in CSS pixels. */
export function sharp(canvas) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width, height };
}
