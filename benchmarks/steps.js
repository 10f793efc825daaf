// Runs and times steps of models, for benchmarks/deploy.py. Node answers requests line by line; a page reads its
// requests from jobs.json and posts all answers at the end.
//
// A request {model, x} returns the outputs of x from a fresh state; {model, steps} continues and returns microseconds
// per step.
import { Model } from "./model.js";

const inNode = typeof process !== "undefined";

async function compiled(name) {
  const at = (file) => (inNode ? new URL(file, import.meta.url) : file);
  const relaxed = name.endsWith("float32") ? at(`${name}.relaxed.wasm`) : undefined; // as in an export
  const model = await Model.load(at(`${name}.wasm`), { relaxed });
  return {
    async outputs(x) {
      model.reset();
      return x.map((row) => Array.from(model.step(Float32Array.from(row))));
    },
    async steps(count) {
      for (let t = 0; t < count; t++) model.advance();
    },
  };
}

/** The ONNX export in onnxruntime-web on one thread; states are passed from run to run. */
async function onnx(name) {
  const ort = await import("./ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create(`${name}.onnx`, { graphOptimizationLevel: "all" });
  const shapes = await (await fetch(`${name}.shapes.json`)).json();
  const zero = (shape) => new ort.Tensor("float32", new Float32Array(shape.reduce((a, b) => a * b, 1)), shape);
  let feeds;
  async function step() {
    const { y, ...states } = await session.run(feeds);
    for (const state in states) feeds[state.replace("next_", "")] = states[state];
    return y;
  }
  return {
    async outputs(x) {
      feeds = Object.fromEntries(Object.entries(shapes).map(([state, shape]) => [state, zero(shape)]));
      const all = [];
      for (const row of x) {
        feeds.x = new ort.Tensor("float32", Float32Array.from(row), [1, row.length]);
        all.push(Array.from((await step()).data));
      }
      return all;
    },
    async steps(count) {
      for (let t = 0; t < count; t++) await step();
    },
  };
}

const models = {};

async function answer({ model: name, x, steps }) {
  models[name] ??= await (name === "onnx" ? onnx : compiled)(name);
  if (x) return { outputs: await models[name].outputs(x) };
  const begin = performance.now();
  await models[name].steps(steps);
  return { microseconds: (1e3 * (performance.now() - begin)) / steps };
}

async function safely(request) {
  try {
    return await answer(request);
  } catch (error) {
    return { error: String(error) };
  }
}

if (inNode) {
  const { createInterface } = await import("node:readline");
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await safely(JSON.parse(line))));
  }
} else {
  const answers = [];
  for (const request of await (await fetch("jobs.json")).json()) answers.push(await safely(request));
  await fetch("answers", { method: "POST", body: JSON.stringify(answers) });
}
