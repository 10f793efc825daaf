// Passes on the samples of the microphone, several blocks at a time.

const SIZE = 1024;

class Tap extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(SIZE);
    this.filled = 0;
  }

  process([[channel]]) {
    for (const sample of channel ?? []) {
      this.block[this.filled++] = sample;
      if (this.filled === SIZE) {
        this.port.postMessage(this.block.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("tap", Tap);
