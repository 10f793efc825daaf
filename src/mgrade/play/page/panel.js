// The choice of a source, and the controls of each source.

import { readTokens, Sketch } from "./draw.js";
import { element } from "./heat.js";
import { Drawn, fromWav, loadExamples, Microphone, Sequences } from "./sources.js";
import { readWav } from "./wav.js";

/** Points of a drawing: some milliseconds of sound, or some steps. */
const SOUND_POINTS = 200;
const POINTS = 60;
/** The range of a drawing: full scale for sound; elsewhere that of standardised values, until it is set. */
const LIMIT = 3;
const $ = (id) => document.getElementById(id);

export class Panel {
  constructor(page) {
    Object.assign(this, { page, engine: page.engine, source: null, trouble: "" });
    const { model, sound } = this.engine;
    const shown = model.tokens ? () => this._typed() : () => this._drawn(sound);
    const noFile = model.tokens ? "This model reads tokens: a WAV file has none." : "";
    const noData = "This page has none: `mgrade play RUN --test 20` adds some.";
    /** By name; `not` says why a source is not available. */
    this.kinds = {
      microphone: { title: "Microphone", make: () => this._microphone(), not: this._noMicrophone() },
      wav: { title: "WAV file", make: () => this._wav(), not: noFile },
      drawn: { title: model.tokens ? "Typed" : "Drawn", make: shown, not: "" },
      test: { title: "Test data", make: () => this._test(), not: page.site.examples.length ? "" : noData },
    };
    this._drop();
  }

  _noMicrophone() {
    const { model, sound, channels } = this.engine;
    const says = "If a step takes successive samples of sound, give their rate: `mgrade play EXPORT --rate HZ`.";
    if (model.tokens) return "This model reads tokens, and a microphone gives sound.";
    if (!sound && channels > 1) return `This model reads ${channels} channels; a microphone has one. ${says}`;
    if (!sound) return `The export does not say that it reads sound. ${says}`;
    if (!navigator.mediaDevices) return "Browsers allow microphones only on pages from this machine or over https.";
    return "";
  }

  /** Builds the buttons, and chooses test data if there are any. */
  async fill() {
    if (!this.kinds.test.not) this.examples = await loadExamples(this.page.site, this.engine.model, this.page.labels);
    for (const [name, { title, not }] of Object.entries(this.kinds)) {
      const label = element($("sources"), "label", "choice");
      const radio = element(label, "input");
      Object.assign(radio, { type: "radio", name: "source", value: name, disabled: Boolean(not) });
      element(label, "span").textContent = title;
      if (not) label.title = not;
      radio.onchange = () => this.choose(name);
    }
    const missing = Object.values(this.kinds).filter(({ not }) => not);
    $("reason").hidden = missing.length === 0;
    $("reason").textContent = missing.map(({ title, not }) => `${title}: ${not}`).join(" ");
    this.choose(this.kinds.test.not ? "drawn" : "test");
  }

  choose(name) {
    const kind = this.kinds[name];
    if (kind.not) throw new Error(kind.not);
    const going = this.page.playing;
    if (this.source) this.page.pause();
    this.name = name;
    this.sketch = null;
    this.trouble = "";
    $("options").replaceChildren();
    document.querySelector(`#sources [value=${name}]`).checked = true;
    this.said = element($("options"), "p", "said");
    this.said.setAttribute("aria-live", "polite");
    this.source = kind.make();
    $("speed").disabled = this.source.live === true;
    $("step").disabled = this.source.live === true;
    this.page.reset();
    this.page.pace();
    if (going && !this.source.empty) this.page.play();
  }

  /** The line under the sources: what is being fed, or what went wrong. */
  say(text) {
    this.trouble = text;
    this.told();
  }

  told() {
    const text = this.trouble || this.source?.said || "";
    if (this.said && this.said.textContent !== text) this.said.textContent = text;
  }

  _microphone() {
    const { about, pooled } = this.page.site;
    const source = new Microphone(this.engine.model.inputs, about.samples_per_second, about.gain);
    source.byWord = pooled !== null;
    const label = element($("options"), "label", "check");
    const box = element(label, "input");
    Object.assign(box, { type: "checkbox", checked: source.byWord, onchange: () => (source.byWord = box.checked) });
    element(label, "span").textContent = "Word by word: restart with every sound, pause in silence";
    return source;
  }

  _wav() {
    const label = element($("options"), "label", "file");
    element(label, "span").textContent = "Choose a WAV file, or drop one anywhere";
    const input = element(label, "input");
    Object.assign(input, { type: "file", accept: ".wav,audio/wav", onchange: () => this._open(input.files[0]) });
    return { empty: "Choose a WAV file first.", next: () => null, said: "" };
  }

  async _open(file) {
    if (!file) return;
    try {
      const sequence = fromWav(readWav(await file.arrayBuffer()), this.engine, file.name);
      if (this.name !== "wav") return; // another source was chosen meanwhile
      this.page.pause();
      this.source = new Sequences([sequence]);
      this.say("");
      this.page.play();
    } catch (error) {
      this.say(error.message);
    }
  }

  _drop() {
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      if (!file || this.kinds.wav.not) return this.say(this.kinds.wav.not);
      this.choose("wav");
      this._open(file);
    });
  }

  _drawn(sound) {
    const { about } = this.page.site;
    const { channels, frame } = this.engine;
    const names = Array.from({ length: channels }, (_, i) => about.channels[i] ?? `${i + 1} of ${channels}`);
    const say = sound ? null : (text) => this.say(text);
    this.sketch = new Sketch($("options"), names, sound ? SOUND_POINTS : POINTS, sound ? 1 : LIMIT, say);
    requestAnimationFrame(() => this.sketch?.draw());
    return new Drawn(this.sketch.values, frame, sound ? about.gain : 1);
  }

  _typed() {
    const { symbols } = this.page.site.about;
    const { inputs } = this.engine.model;
    const some = symbols.length ? symbols : [0, 1, 2].slice(0, inputs);
    const label = element($("options"), "label", "typed");
    element(label, "span").textContent = symbols.length ? `Tokens: ${symbols.join(" ")}` : "Tokens, as numbers";
    const input = element(label, "input");
    input.type = "text";
    input.spellcheck = false;
    input.value = some.join(" ");
    const source = { at: 0, tokens: [], said: "again and again, from the first to the last" };
    const read = () => {
      try {
        source.tokens = readTokens(input.value, symbols, inputs);
        source.at = 0;
        this.trouble = "";
      } catch (error) {
        this.trouble = error.message;
      }
      this.told();
    };
    source.begin = () => (source.at = 0);
    source.next = () => ({ x: source.tokens[source.at++ % source.tokens.length], begin: false, truth: -1 });
    input.oninput = read;
    read();
    return source;
  }

  _test() {
    const label = element($("options"), "label", "pick");
    element(label, "span").textContent = "Sequence";
    const select = element(label, "select");
    this.examples.forEach(({ name }, index) => select.add(new Option(name, index)));
    const source = new Sequences(this.examples, (number) => (select.value = number));
    select.onchange = () => source.choose(Number(select.value));
    return source;
  }
}
