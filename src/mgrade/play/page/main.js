// The page: loads the model, lets the user choose a source, feeds samples at the chosen pace, and draws what changed.
//
// In the console, `playground` has: engine, play(), pause(), step(), reset(), choose(name), playing, source; record(),
// the recent inputs and outputs; inside(), the state of every layer.

import { Bars, Scope, Timeline } from "./charts.js";
import { Engine } from "./engine.js";
import { Cost, grouped, Inside } from "./inside.js";
import { Panel } from "./panel.js";

/** The most milliseconds that steps may take per frame. */
const BUDGET = 10;
/** Seconds, at real time, for which the answer stays after the last sample of a sequence. */
const PAUSE = 0.7;
const FRAMES = 60;
const MULTIPLES = [0.05, 0.25, 0.5, 1, 2, 5, 20];
const $ = (id) => document.getElementById(id);

class Page {
  constructor(site, engine) {
    Object.assign(this, { site, engine, playing: false, due: 0, last: 0, dirty: true });
    const { labels } = site.about;
    this.labels = labels.length ? labels : Array.from({ length: engine.model.outputs }, (_, index) => `${index}`);
    $("page").hidden = false; // first: charts measure their size
    this._head();
    this.panel = new Panel(this);
    this.scope = new Scope($("scope"), engine);
    this.bars = new Bars($("bars"), engine, this.labels);
    this.timeline = new Timeline($("timeline"), engine, this.labels);
    this.cost = new Cost($("cost"), engine);
    this.inside = new Inside($("layers"), engine);
    this._paces();
    this._controls();
    const again = () => this._still();
    new ResizeObserver(again).observe($("layers"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }

  _head() {
    const { about, layers, name, precision } = this.site;
    const depth = layers.length === 1 ? "1 layer" : `${layers.length} layers`;
    const numbers = precision === "float32" ? "float32" : `int8 weights, ${precision} activations`;
    $("title").textContent = about.title || name;
    document.title = `${about.title || name} · mgrade playground`;
    const restarts = about.window === null ? "" : `; it restarts every ${grouped(about.window)} samples`;
    $("subtitle").textContent = `${name}: ${depth} with state, ${numbers}, one sample at a time in WebAssembly${restarts}`;
    const blind = layers.some(({ gates }) => gates) && !this.engine.twin;
    $("inside-note").hidden = layers.length > 0 && !blind;
    $("inside-note").textContent = blind
      ? "Gates are not shown: this page was built without the compiler that their module needs."
      : "This model has no state to show.";
  }

  _paces() {
    const { known, rate } = this.engine;
    for (const multiple of MULTIPLES) {
      const usual = multiple === 1;
      const name = known ? `${usual ? "real time" : `${multiple} ×`}, ` : "";
      const speed = grouped(Number((rate * multiple).toPrecision(3)));
      $("speed").add(new Option(`${name}${speed} steps/s`, multiple, usual, usual));
    }
    $("speed").onchange = () => this.pace();
    this.pace();
  }

  /** Applies the chosen pace; a column of the history holds about as many steps as a frame. */
  pace() {
    this.speed = this.panel.source?.live ? 1 : Number($("speed").value);
    this.engine.stride = Math.max(1, Math.ceil((this.engine.rate * this.speed) / FRAMES));
    this.due = 0;
  }

  _controls() {
    const toggle = () => (this.playing ? this.pause() : this.play());
    const keys = { " ": toggle, ".": () => this.step(), r: () => this.reset() };
    $("play").onclick = toggle;
    $("step").onclick = keys["."];
    $("reset").onclick = keys.r;
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input[type=text], input[type=number], select, [role=application]");
      const pressing = event.key === " " && event.target.closest?.("button, [type=checkbox], [type=file]");
      const act = keys[event.key.toLowerCase()];
      if (!act || typing || pressing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
  }

  _still() {
    this.scope.recolour();
    this.inside.still();
    this.panel.sketch?.draw();
    this.dirty = true;
  }

  /** Starts taking samples; opens the microphone if that is the source. */
  async play() {
    if (this.playing) return;
    if (this.panel.source.empty) return this.panel.say(this.panel.source.empty);
    const turn = (this._turn = {});
    try {
      await this.panel.source.open?.();
    } catch (error) {
      this.panel.say(`The microphone cannot be used: ${error.message}`);
      return;
    }
    if (this._turn !== turn) return; // paused meanwhile, or another source chosen
    this.playing = true;
    this.pace();
    $("play").textContent = "Pause";
  }

  pause() {
    this._turn = null;
    this.panel.source.close?.();
    this.playing = false;
    $("play").textContent = "Play";
    this.dirty = true;
  }

  /** Takes one sample, if there is one. */
  step() {
    if (this.playing) this.pause();
    this._take(true);
  }

  /** Restarts the stream and its source. */
  reset() {
    this.engine.reset();
    this.panel.source.begin?.();
    this.dirty = true;
  }

  _take(close = false) {
    const sample = this.panel.source.next();
    if (sample === null) return false;
    if (sample.begin || this.engine.since >= this.engine.window) this.engine.reset();
    this.engine.step(sample.x, { truth: sample.truth, close: close || sample.end });
    if (sample.end) this.due = -PAUSE * this.engine.rate;
    this.dirty = true;
    return true;
  }

  /** Called for every frame: runs the steps that are due, within a time budget, and draws. */
  frame(now) {
    const passed = Math.min(0.25, (now - this.last) / 1000);
    this.last = now;
    if (this.playing) this._advance(passed);
    if (this.playing) this.cost.measure(now);
    if (this.dirty) this._draw();
    this.dirty = false;
  }

  _advance(passed) {
    const end = performance.now() + BUDGET;
    if (this.panel.source.live) {
      while (this._take() && performance.now() < end);
      this.dirty = true; // the source's status line may change
      return;
    }
    this.due += passed * this.engine.rate * this.speed;
    for (; this.due >= 1 && performance.now() < end; this.due--) this._take();
    this.due = Math.min(this.due, 1); // steps that do not fit are dropped, not caught up
  }

  _draw() {
    const { columns, steps, stride } = this.engine;
    for (const part of [this.scope, this.timeline, this.inside, this.cost]) part.draw();
    const { best, value } = this.bars.draw();
    const [shown, sure] = best < 0 ? [value.toPrecision(4), ""] : [this.labels[best], this._verdict(best, value)];
    $("winner").textContent = steps ? shown : "–";
    $("sure").textContent = steps ? sure : "";
    this.timeline.span.textContent = `${grouped(columns * stride)} steps`;
    this.panel.told();
  }

  /** The probability of the answer, and whether it is right on test data. */
  _verdict(best, value) {
    const { truth } = this.engine;
    const right = truth < 0 ? "" : truth === best ? ", right" : `, should be ${this.labels[truth]}`;
    return `${(100 * value).toFixed(1)} %${right}`;
  }
}

function fail(error) {
  $("trouble").textContent = error.message;
  $("trouble").hidden = false;
}

async function begin() {
  const response = await fetch("playground.json");
  if (!response.ok) throw new Error(`playground.json: ${response.status} ${response.statusText}`);
  const site = await response.json();
  const page = new Page(site, await Engine.load(site));
  await page.panel.fill();
  page.cost.measure(0);
  const frame = (now) => {
    try {
      page.frame(now);
      requestAnimationFrame(frame);
    } catch (error) {
      fail(error);
      throw error;
    }
  };
  requestAnimationFrame(frame);
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) page.play();
  window.playground = {
    engine: page.engine,
    play: () => page.play(),
    pause: () => page.pause(),
    step: () => page.step(),
    reset: () => page.reset(),
    choose: (name) => page.panel.choose(name),
    record: () => page.engine.record(),
    inside: () => page.engine.inside(),
    get playing() {
      return page.playing;
    },
    get source() {
      return page.panel.source;
    },
  };
}

begin().catch((error) => {
  $("subtitle").textContent = "The model could not be loaded.";
  fail(error);
});
