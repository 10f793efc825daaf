// Runs a model that mgrade compiled to WebAssembly, one sample at a time, in pages, workers and Node.
//
//     import { Model } from "./model.js";
//
//     const model = await Model.load("vowels.wasm");
//     const y = model.step(Float32Array.of(0.1, 0.2, 0.3));  // or model.step(7), if it takes tokens
//     model.reset();
//
// `step` takes and returns real numbers, converting them for integer models; `stepRaw` does not convert.

const TYPES = {
  float32: Float32Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  uint16: Uint16Array,
};
const PAGE = 65536;
/** A module with one function that uses a fused multiply-add, to probe for relaxed SIMD. */
const PROBE = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0], // wasm, version 1
  ...[1, 5, 1, 96, 0, 1, 123], // a type: nothing -> v128
  ...[3, 2, 1, 0], // a function of it
  ...[10, 19, 1, 17, 0, 65, 0, 253, 15, 65, 0, 253, 15, 65, 0, 253, 15, 253, 133, 2, 11],
);

export class Model {
  /**
   * Loads a model.
   * @param {string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module} source a URL (in Node, also a path),
   *     the bytes of a module, or a compiled module
   * @param {{streams?: number, relaxed?: string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module}} options
   *     the number of independent streams, which share the weights; and the same model as NAME.relaxed.wasm, which is
   *     faster and replaces `source` where the engine supports it
   */
  static async load(source, { streams = 1, relaxed } = {}) {
    const chosen = relaxed !== undefined && Model.relaxed ? relaxed : source;
    const module =
      chosen instanceof WebAssembly.Module ? chosen : await WebAssembly.compile(await bytes(chosen));
    return new Model(module, await WebAssembly.instantiate(module), streams);
  }

  /** Whether this engine supports relaxed modules. */
  static relaxed = WebAssembly.validate(PROBE);

  /** Use `load` instead. */
  constructor(module, instance, streams) {
    if (!Number.isInteger(streams) || streams < 1) {
      throw new RangeError(`streams must be a whole number of at least 1, got ${streams}`);
    }
    /** The description in the module: name, inputs, outputs, tokens, precision, types and units. */
    this.metadata = describe(module);
    const { inputs, outputs, tokens } = this.metadata;
    /** Channels of a sample; for a model that reads tokens, the size of the vocabulary. */
    this.inputs = inputs;
    this.outputs = outputs;
    this.tokens = tokens;
    this.streams = streams;

    const wasm = instance.exports;
    /** Bytes of state of one stream. */
    this.stateBytes = wasm.state_bytes();
    this._step = wasm.step;
    this._init = wasm.init;
    this._at = { input: wasm.input(), output: wasm.output() };
    this._states = [wasm.state(), ...further(wasm, this.stateBytes, streams - 1)];
    // memory does not grow after this point, so these views stay valid
    const { buffer } = wasm.memory;
    this._memory = buffer;
    /** The buffers of the module, for `advance`. */
    this.input = new TYPES[this.metadata.input_type](buffer, this._at.input, tokens ? 1 : inputs);
    this.output = new TYPES[this.metadata.output_type](buffer, this._at.output, outputs);

    this._half = this.metadata.precision === "int8" ? 128 : 32768;
    const { input_units: into, output_units: out } = this.metadata;
    this._units = into?.map(([offset, bits]) => [offset, 2 ** bits]);
    this._out = out?.map(([offset, bits]) => [offset, 2 ** -bits]);
    this.reset();
  }

  /** One sample, `inputs` real numbers or a token -> `outputs` real numbers in a new array. */
  step(x, stream = 0) {
    this._write(x, this._units);
    this.advance(stream);
    if (!this._out) return this.output.slice();
    return Float32Array.from(this.output, (whole, i) => this._out[i][0] + whole * this._out[i][1]);
  }

  /** The same without conversion: the model's own integers, if it is an integer model. */
  stepRaw(x, stream = 0) {
    this._write(x);
    this.advance(stream);
    return this.output.slice();
  }

  /** One step from `input` to `output`, without copies; nothing is checked but `stream`. */
  advance(stream = 0) {
    this._step(this._state(stream), this._at.input, this._at.output);
  }

  /** The state of a stream, as a view of the module's memory. */
  state(stream = 0) {
    return new Uint8Array(this._memory, this._state(stream), this.stateBytes);
  }

  /** Restarts one stream, or all of them. */
  reset(stream) {
    const states = stream === undefined ? this._states : [this._state(stream)];
    for (const state of states) this._init(state);
  }

  _state(stream) {
    const state = this._states[stream];
    if (state === undefined) throw new RangeError(`stream must be 0 to ${this.streams - 1}, got ${stream}`);
    return state;
  }

  _write(x, units) {
    if (this.tokens) {
      if (!Number.isInteger(x) || x < 0 || x >= this.inputs) {
        throw new RangeError(`a token must be a whole number from 0 to ${this.inputs - 1}, got ${x}`);
      }
      this.input[0] = x;
      return;
    }
    if (x?.length !== this.inputs) throw new RangeError(`x must hold ${this.inputs} numbers, got ${x?.length}`);
    if (!units) return this.input.set(x);
    for (let i = 0; i < this.inputs; i++) {
      const [offset, scale] = units[i];
      const whole = Math.floor(Math.fround(Math.fround(x[i]) - offset) * scale + 0.5);
      this.input[i] = Math.max(-this._half, Math.min(this._half - 1, whole)); // NaN becomes 0
    }
  }
}

async function bytes(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  const inNode = typeof process !== "undefined" && process.versions?.node !== undefined;
  if (inNode && !/^https?:/.test(source)) {
    const { readFile } = await import(/* webpackIgnore: true */ "node:fs/promises");
    return readFile(source);
  }
  const response = await fetch(source);
  if (!response.ok) throw new Error(`${source}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

function describe(module) {
  const [section] = WebAssembly.Module.customSections(module, "mgrade");
  if (section === undefined) throw new TypeError("the module was not made by mgrade");
  const metadata = JSON.parse(new TextDecoder().decode(section));
  if (metadata.format !== "mgrade-wasm" || metadata.version !== 2) {
    throw new TypeError(`the module must be mgrade-wasm 2, got ${metadata.format} ${metadata.version}`);
  }
  return metadata;
}

/** Addresses of the states of further streams: after everything else, in memory that is added for them. */
function further(wasm, stateBytes, count) {
  const apart = Math.ceil(stateBytes / 16) * 16;
  const first = Math.ceil(wasm.__heap_base.value / 16) * 16;
  const lacking = first + apart * count - wasm.memory.buffer.byteLength;
  if (count > 0 && lacking > 0) wasm.memory.grow(Math.ceil(lacking / PAGE));
  return Array.from({ length: count }, (_, index) => first + apart * index);
}
