// Reads WAV files: PCM of 8, 16, 24 or 32 bits, or 32-bit floats.

const PCM = 1;
const FLOAT = 3;
const EXTENSIBLE = 0xfffe;

/** An ArrayBuffer -> {rate, channels: one Float32Array each, from -1 to 1}; throws an Error if it is malformed. */
export function readWav(buffer) {
  const view = new DataView(buffer);
  const text = (at) => String.fromCharCode(...new Uint8Array(buffer, at, 4));
  if (buffer.byteLength < 12 || text(0) !== "RIFF" || text(8) !== "WAVE") throw new Error("this is not a WAV file");
  let format = null;
  for (let at = 12; at + 8 <= buffer.byteLength; ) {
    const [name, size] = [text(at), view.getUint32(at + 4, true)];
    const end = Math.min(at + 8 + size, buffer.byteLength);
    if (name === "fmt " && end - at >= 24) format = readFormat(view, at + 8, end);
    if (name === "data") {
      if (!format) throw new Error("the WAV file has no format before its samples");
      return { rate: format.rate, channels: samples(view, at + 8, end, format) };
    }
    at += 8 + size + (size % 2);
  }
  throw new Error("the WAV file has no samples");
}

function readFormat(view, at, end) {
  let kind = view.getUint16(at, true);
  if (kind === EXTENSIBLE && end - at >= 26) kind = view.getUint16(at + 24, true);
  const [channels, rate] = [view.getUint16(at + 2, true), view.getUint32(at + 4, true)];
  const bits = view.getUint16(at + 14, true);
  const known = (kind === PCM && [8, 16, 24, 32].includes(bits)) || (kind === FLOAT && bits === 32);
  if (!known) {
    const said = `its format is ${kind}, ${bits} bits`;
    throw new Error(`the WAV file must hold PCM of 8 to 32 bits, or 32-bit floats; ${said}`);
  }
  if (channels < 1 || rate < 1) throw new Error(`the WAV file says ${channels} channels at ${rate} Hz`);
  return { kind, channels, rate, bytes: bits / 8 };
}

function samples(view, begin, end, { kind, channels, bytes }) {
  const read = {
    1: (at) => (view.getUint8(at) - 128) / 128,
    2: (at) => view.getInt16(at, true) / 32768,
    3: (at) => (view.getInt8(at + 2) * 65536 + view.getUint16(at, true)) / 8388608,
    4: (at) => (kind === FLOAT ? view.getFloat32(at, true) : view.getInt32(at, true) / 2147483648),
  }[bytes];
  const count = Math.floor((end - begin) / (bytes * channels));
  if (count === 0) throw new Error("the WAV file has no samples");
  return Array.from({ length: channels }, (_, channel) =>
    Float32Array.from({ length: count }, (_, t) => read(begin + (t * channels + channel) * bytes)),
  );
}
