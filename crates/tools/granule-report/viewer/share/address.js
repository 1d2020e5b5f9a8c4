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
