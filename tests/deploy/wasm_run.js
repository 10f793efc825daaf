// Runs the jobs beside it and hands back what came out: printed in Node, posted to where it came from in a page.
import { Model } from "./model.js";

const inNode = typeof process !== "undefined";

async function read(name) {
  if (!inNode) return (await fetch(name)).text();
  const { readFile } = await import("node:fs/promises");
  return readFile(new URL(name, import.meta.url), "utf8");
}

/** A job: {model, method, x}, one sample after the other. */
async function run({ model: name, method, x }) {
  const model = await Model.load(inNode ? new URL(`${name}.wasm`, import.meta.url) : `${name}.wasm`);
  return x.map((row) => Array.from(model[method](Array.isArray(row) ? Float32Array.from(row) : row)));
}

const answer = { outputs: [] };
try {
  for (const job of JSON.parse(await read("jobs.json"))) answer.outputs.push(await run(job));
} catch (error) {
  answer.error = String(error);
}
if (inNode) console.log(JSON.stringify(answer));
else await fetch("answer", { method: "POST", body: JSON.stringify(answer) });
