// The part of the page's address that is behind its `#`, and the browser's history of it.

/** How long nothing has to change until that is a place of its own to go back to. */
const STEADY_MS = 300;

/** What a person begins to change something with. */
const TOUCHES = ["pointerdown", "keydown", "wheel"];

export class Address {
  constructor() {
    // What comes after this is a change of the person's, and no longer what the address has led to.
    for (const touch of TOUCHES) window.addEventListener(touch, () => this.opened(), { capture: true, passive: true });
  }

  get text() {
    return window.location.hash.slice(1);
  }

  /** What the address says is shown, which is `text`: the place is corrected where that differs, or one could not go back from it. */
  open(text) {
    this.correct = true;
    this.noted = null;
    this.note(text);
  }

  /** What is looked at may have changed: once it is steady it is a place in the browser's history. */
  note(text) {
    if (text === this.noted) return;
    this.noted = text;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.keep(text), STEADY_MS);
  }

  /** The place that was opened is all there: it is not corrected any more. */
  opened() {
    if (!this.correct) return;
    clearTimeout(this.waiting);
    this.keep(this.noted);
  }

  keep(text) {
    const { correct } = this;
    this.correct = false;
    if (this.text === text) return;
    // Whole: in a notebook the page is in a frame, of which a part of an address would be the notebook's. An empty part would be
    // the address of the file, which opens it again in some browsers.
    window.history[correct ? "replaceState" : "pushState"](null, "", `${window.location.href.split("#")[0]}#${text}`);
  }
}

const WHOLE = /^[0-9]+$/;
const DECIMAL = /^[0-9]+(\.[0-9]+)?$/;

/** A part of an address that is a number: its word, the name of the value, and how that is written and read; `undefined` where it is none. */
export function numberPart(word, name, low, high, digits = 0) {
  const write = (value) => String(Number(value.toFixed(digits)));
  // There is no half of an entry or of a frame.
  const read = (text) => ((digits > 0 ? DECIMAL : WHOLE).test(text) && Number(text) >= low && Number(text) <= high ? Number(text) : undefined);
  return { word, name, write, read };
}

/** The text of an address. What is as when the page opens is not in it. */
export function writeParts(parts, values, home, given = {}) {
  const said = new URLSearchParams(given);
  for (const { word, name, write } of parts) {
    if (values[name] !== home[name] && values[name] !== null) said.set(word, write(values[name]));
  }
  return said.toString();
}

/** The values that an address is of. What it does not say, or wrongly, is as when the page opens. */
export function readParts(parts, text, home) {
  const said = new URLSearchParams(text);
  const values = { ...home };
  for (const { word, name, read } of parts) {
    const value = said.has(word) ? read(said.get(word)) : undefined;
    if (value !== undefined) values[name] = value;
  }
  // A window of nothing shows nothing.
  if (!(values.to - values.from >= 1)) Object.assign(values, { from: home.from, to: home.to });
  if (!(values.high - values.low >= 1)) Object.assign(values, { low: home.low, high: home.high });
  return values;
}
