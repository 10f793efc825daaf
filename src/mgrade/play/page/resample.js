// Band-limited resampling with a polyphase filter: a sinc under a Kaiser window. It takes a stream in blocks of any
// size; the output does not depend on the block boundaries.

/** Zero crossings of the sinc on either side, and the window's shape: 80 dB of stop-band attenuation. */
const CROSSINGS = 24;
const BETA = 8;
/** The middle of the transition band, as a share of the highest frequency of the lower rate. */
const EDGE = 0.92;

export class Resampler {
  constructor(from, to) {
    const common = divisor(from, to);
    this.up = to / common;
    this.down = from / common;
    this.reach = Math.ceil((CROSSINGS * Math.max(from, to)) / to);
    this._phases = from === to ? null : filters(this.up, this.reach, EDGE * Math.min(1, to / from));
    this._held = new Float32Array(2 * this.reach); // silence before the first sample
    // the next output, in steps of 1 / up from the start of `_held`; the middle of its filter is `reach` later
    this._next = this.reach * this.up;
  }

  /** Samples in -> samples out, as many as are determined so far. */
  push(block) {
    if (!this._phases) return block;
    const all = new Float32Array(this._held.length + block.length);
    all.set(this._held);
    all.set(block, this._held.length);
    const taps = 2 * this.reach;
    const out = [];
    for (; Math.floor(this._next / this.up) + taps < all.length; this._next += this.down) {
      const first = Math.floor(this._next / this.up) + 1;
      const filter = this._phases(this._next % this.up);
      let sum = 0;
      for (let k = 0; k < taps; k++) sum += filter[k] * all[first + k];
      out.push(sum);
    }
    const done = Math.floor(this._next / this.up);
    this._held = all.slice(done);
    this._next -= done * this.up;
    return Float32Array.from(out);
  }

  /** The remaining samples after the last block. */
  end() {
    return this._phases ? this.push(new Float32Array(this.reach)) : new Float32Array(0);
  }
}

/** The filter for each of `up` positions between two samples, built on first use. */
function filters(up, reach, band) {
  const made = new Map();
  return (phase) => {
    if (!made.has(phase)) made.set(phase, filter(phase / up, reach, band));
    return made.get(phase);
  };
}

function filter(offset, reach, band) {
  const weights = new Float64Array(2 * reach);
  let sum = 0;
  for (let k = 0; k < 2 * reach; k++) {
    const x = k + 1 - reach - offset;
    const angle = Math.PI * band * x;
    const sinc = angle === 0 ? 1 : Math.sin(angle) / angle;
    weights[k] = sinc * kaiser(x / reach);
    sum += weights[k];
  }
  return weights.map((weight) => weight / sum); // at every position, a constant stays unchanged
}

function kaiser(x) {
  return x * x >= 1 ? 0 : bessel(BETA * Math.sqrt(1 - x * x)) / bessel(BETA);
}

/** The modified Bessel function of order 0. */
function bessel(x) {
  let [sum, term] = [1, 1];
  for (let k = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function divisor(a, b) {
  return b === 0 ? a : divisor(b, a % b);
}

/** Resamples a whole sound; its start stays where it was. */
export function resample(samples, from, to) {
  if (from === to) return samples;
  const resampler = new Resampler(from, to);
  const [most, rest] = [resampler.push(samples), resampler.end()];
  const all = new Float32Array(most.length + rest.length);
  all.set(most);
  all.set(rest, most.length);
  return all;
}
