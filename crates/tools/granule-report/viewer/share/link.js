// The address of the page holds what is looked at: a copied link opens the same, and back and forward work.
import { change, state } from "../data/state.js";
import { linkedDevice } from "../data/store.js";
import { Address } from "./address.js";

const WHOLE = /^[0-9]+$/;
const DECIMAL = /^[0-9]+(\.[0-9]+)?$/;

/** What a link can say: its word, the state's name, and how a value is written and read; `undefined` where it is none. */
function partsOf(about) {
  const number = (word, name, low, high, digits = 0) => ({
    word,
    name,
    write: (value) => String(Number(value.toFixed(digits))),
    // There is no half of an entry or of a frame.
    read: (text) => ((digits > 0 ? DECIMAL : WHOLE).test(text) && Number(text) >= low && Number(text) <= high ? Number(text) : undefined),
  });
  const choice = (word, name, choices) => ({
    word,
    name,
    write: (value) => value,
    read: (text) => (choices.includes(text) ? text : undefined),
  });
  const flag = (word, name) => ({
    word,
    name,
    write: (value) => (value ? "yes" : "no"),
    read: (text) => (text === "yes" || text === "no" ? text === "yes" : undefined),
  });
  const end = about.length + 1;
  return [
    number("entry", "moment", 0, about.length),
    {
      word: "by",
      name: "way",
      write: (way) => about.ways[way].id,
      read: (text) => [about.ways.findIndex((way) => way.id === text)].find((way) => way >= 0),
    },
    number("from", "from", 0, end, 3),
    number("to", "to", 0, end, 3),
    number("low", "low", 0, Number.MAX_SAFE_INTEGER),
    number("high", "high", 0, Number.MAX_SAFE_INTEGER),
    number("only", "only", 0, 255),
    choice("view", "below", ["space", "flame"]),
    number("frame", "frame", 0, 2 ** 32),
    flag("native", "native"),
    number("map-zoom", "mapZoom", 1, 4096, 3),
    number("map-scroll", "mapScroll", 0, 2 ** 32),
    flag("map-reserved", "mapCompact"),
    choice("panel", "tab", ["moment", "events", "search", "whatif", "run"]),
    { word: "search", name: "query", write: (text) => text, read: (text) => text },
  ];
}

export class Link {
  /** What the state is now is what a page without a link opens with. */
  constructor({ about, device }) {
    Object.assign(this, { about, device });
    this.address = new Address();
    this.parts = partsOf(about);
    this.home = Object.fromEntries(this.parts.map(({ name }) => [name, state[name]]));
    window.addEventListener("popstate", () => this.open());
  }

  /** Shows what the address says. */
  open() {
    // The page shows another device when it opens anew.
    if (linkedDevice(this.about.devices.length) !== this.device) return window.location.reload();
    change(this.read(this.address.text));
    return this.address.open(this.write());
  }

  /** The state that a link is of. What it does not say is as when the page opens. */
  read(text) {
    const { home, about } = this;
    const given = new URLSearchParams(text);
    const values = { ...home };
    for (const { word, name, read } of this.parts) {
      const value = given.has(word) ? read(given.get(word)) : undefined;
      if (value !== undefined) values[name] = value;
    }
    // A window of nothing shows nothing.
    if (!(values.to - values.from >= 1)) Object.assign(values, { from: home.from, to: home.to });
    if (!(values.high - values.low >= 1)) Object.assign(values, { low: home.low, high: home.high });
    if (values.only >= about.ways[values.way].names.length) values.only = null;
    return values;
  }

  /** The link to what is looked at. */
  write() {
    const given = new URLSearchParams(this.device > 0 ? { device: this.device } : {});
    for (const { word, name, write } of this.parts) {
      if (state[name] !== this.home[name] && state[name] !== null) given.set(word, write(state[name]));
    }
    return given.toString();
  }

  /** The state may have changed. */
  note() {
    this.address.note(this.write());
  }
}
