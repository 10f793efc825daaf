// Sources of samples. `next()` returns a sample, or null if there is none at the moment: {x, begin: the stream restarts
// with it, end: it is the last of its sequence, truth: its class if known, else -1}; x is the input of a step, possibly
// a frame of samples. `begin()` restarts the source. `live` sources set their own pace; `said` describes what is fed.

import { resample, Resampler } from "./resample.js";

/** Repeats a list of sequences; the stream restarts with each. */
export class Sequences {
  /** sequences: {length, at(step), truth, said}; chosen(number) is called when one starts. */
  constructor(sequences, chosen = () => {}) {
    Object.assign(this, { sequences, chosen });
    this.choose(0);
  }

  choose(number) {
    this.number = number;
    this.at = 0;
    this.chosen(number);
  }

  begin() {
    this.at = 0;
  }

  get said() {
    return this.sequences[this.number].said ?? "";
  }

  next() {
    if (this.at >= this.sequences[this.number].length) this.choose((this.number + 1) % this.sequences.length);
    const sequence = this.sequences[this.number];
    const [begin, end] = [this.at === 0, this.at === sequence.length - 1];
    return { x: sequence.at(this.at++), begin, end, truth: sequence.truth };
  }
}

/** The test sequences of the page. */
export async function loadExamples(site, model, labels) {
  const response = await fetch("examples.bin");
  if (!response.ok) throw new Error(`examples.bin: ${response.status} ${response.statusText}`);
  const data = await response.arrayBuffer();
  const width = model.tokens ? 1 : model.inputs;
  const numbers = model.tokens ? new Uint16Array(data) : new Float32Array(data);
  let begin = 0;
  return site.examples.map(({ steps, label }, index) => {
    const own = numbers.subarray(begin, (begin += steps * width));
    const at = (t) => (model.tokens ? own[t] : own.subarray(t * width, (t + 1) * width));
    const name = `${index + 1} of ${site.examples.length}` + (label === null ? "" : `: ${labels[label]}`);
    return { length: steps, at, truth: label ?? -1, name };
  });
}

/** A WAV file as a sequence; throws an Error if it does not fit the model. */
export function fromWav({ rate, channels }, engine, name) {
  const { model, site } = engine;
  if (model.tokens) throw new Error("this model reads tokens, not sound");
  const wanted = site.about.samples_per_second;
  if (wanted === null && engine.channels > 1) return fromChannels(channels, engine, name);
  const mono = channels[0].map((_, t) => channels.reduce((sum, channel) => sum + channel[t], 0) / channels.length);
  const sound = wanted === null ? mono : resample(mono, rate, wanted);
  const length = Math.floor(sound.length / model.inputs);
  if (length === 0) throw new Error(`${name} is shorter than a step of ${model.inputs} samples`);
  const loud = sound.map((sample) => sample * site.about.gain);
  const at = (t) => loud.subarray(t * model.inputs, (t + 1) * model.inputs);
  return { length, at, truth: -1, said: `${name}, ${(mono.length / rate).toFixed(2)} s at ${rate} Hz` };
}

function fromChannels(channels, engine, name) {
  const { frame } = engine;
  if (channels.length !== engine.channels) {
    throw new Error(`${name} has ${channels.length} channels, and this model reads ${engine.channels}`);
  }
  const length = Math.floor(channels[0].length / frame);
  if (length === 0) throw new Error(`${name} is shorter than a step of ${frame} samples`);
  const at = (t) => framed(channels, frame, t * frame);
  return { length, at, truth: -1, said: `${name}, ${channels.length} channels` };
}

/** The input of a step: `frame` samples, oldest first, each of all channels; wraps around at the end. */
function framed(channels, frame, begin) {
  const count = channels.length;
  return Float32Array.from({ length: frame * count }, (_, i) => {
    const channel = channels[i % count];
    return channel[(begin + Math.floor(i / count)) % channel.length];
  });
}

/** A drawing that is read in a loop: `values` has an array of points for every channel. */
export class Drawn {
  constructor(values, frame, gain) {
    Object.assign(this, { values, frame, gain, at: 0, said: "" });
  }

  begin() {
    this.at = 0;
  }

  next() {
    const x = framed(this.values, this.frame, this.at).map((value) => value * this.gain);
    this.at = (this.at + this.frame) % this.values[0].length;
    return { x, begin: false, truth: -1 };
  }
}

/** Seconds of silence that end a sound, and seconds before its onset that belong to it. */
const SILENCE = 0.35;
const BEFORE = 0.06;
/** The least level of a sound, and its least ratio to the background noise. */
const LEAST = 0.008;
const OVER = 3;

/** The microphone, at the model's rate. With `byWord`, it feeds samples only during sounds and restarts with each. */
export class Microphone {
  constructor(inputs, rate, gain) {
    this.live = true;
    this.rate = rate / inputs;
    this.byWord = false;
    this.dropped = 0;
    this._facts = { inputs, rate, gain };
    this._queue = [];
  }

  /** Asks for the microphone and starts listening, unless it was closed meanwhile. */
  async open() {
    const turn = (this._turn = {});
    const exact = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio: exact });
    const context = new AudioContext();
    const end = () => {
      stream.getTracks().forEach((track) => track.stop());
      context.close();
    };
    try {
      await context.audioWorklet.addModule("microphone-worklet.js");
      await context.resume();
    } catch (error) {
      end();
      throw error;
    }
    if (this._turn !== turn) return end();
    this._end = end;
    this._heard = context.sampleRate;
    this._resampler = new Resampler(context.sampleRate, this._facts.rate);
    this._rest = new Float32Array(0);
    this._words = new Words(this.rate);
    const one = { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" };
    const tap = new AudioWorkletNode(context, "tap", one);
    tap.port.onmessage = ({ data }) => this._take(data);
    context.createMediaStreamSource(stream).connect(tap);
  }

  close() {
    this._turn = undefined;
    this._end?.();
    this._end = undefined;
    this._words = undefined;
    this._queue = [];
  }

  get said() {
    if (!this._words) return "";
    const from = `${this._heard} Hz, resampled to ${this._facts.rate} Hz`;
    const late = this.dropped ? `; ${this.dropped} steps were dropped: the page could not keep up` : "";
    return `listening at ${from}${this.byWord && !this._words.open ? ": waiting for a sound" : ""}${late}`;
  }

  next() {
    return this._queue.shift() ?? null;
  }

  _take(block) {
    if (!this._words) return; // closed meanwhile
    const { inputs, gain } = this._facts;
    const fresh = this._resampler.push(block);
    const all = new Float32Array(this._rest.length + fresh.length);
    all.set(this._rest);
    all.set(fresh, this._rest.length);
    const frames = Math.floor(all.length / inputs);
    for (let t = 0; t < frames; t++) {
      const frame = all.slice(t * inputs, (t + 1) * inputs);
      const entry = { x: frame.map((sample) => sample * gain), begin: false, truth: -1 };
      const heard = this._words.hear(frame, entry); // always, so that it tracks the noise
      this._queue.push(...(this.byWord ? heard : [entry]));
    }
    this._rest = all.slice(frames * inputs);
    const over = this._queue.length - Math.ceil(this.rate); // lag by at most a second
    if (over > 0) this.dropped += this._queue.splice(0, over).length;
  }
}

/** Detects where sounds begin and end. */
class Words {
  constructor(rate) {
    this.rate = rate;
    this.open = false;
    this.noise = LEAST;
    this._level = 0;
    this._quiet = 0;
    this._before = [];
  }

  /** A frame and its entry -> the entries to feed; none in silence. */
  hear(frame, entry) {
    const power = frame.reduce((sum, sample) => sum + sample * sample, 0) / frame.length;
    const share = Math.min(1, 1 / (0.02 * this.rate)); // over 20 ms
    this._level += share * (power - this._level);
    const level = Math.sqrt(this._level);
    const slow = 1 / this.rate; // the noise level rises within seconds and falls at once
    this.noise = Math.min(level, this.noise * (1 + slow) + 1e-6 * slow);
    const loud = level > Math.max(LEAST, OVER * this.noise);
    this._quiet = loud ? 0 : this._quiet + 1;
    if (this.open) {
      this.open = this._quiet < SILENCE * this.rate;
      return [entry];
    }
    this._before.push(entry);
    if (!loud) {
      this._before = this._before.slice(-Math.ceil(BEFORE * this.rate));
      return [];
    }
    const heard = this._before;
    this._before = [];
    this.open = true;
    heard[0].begin = true;
    return heard;
  }
}
