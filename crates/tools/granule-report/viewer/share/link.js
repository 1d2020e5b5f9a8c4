// The address of the page holds what is looked at: a copied link opens the same, and back and forward work.
import { change, state } from "../data/state.js";
import { linkedDevice } from "../data/store.js";
import { Address, numberPart, readParts, writeParts } from "./address.js";

/** What a link can say; see `numberPart`. */
function partsOf(about) {
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
    numberPart("entry", "moment", 0, about.length),
    {
      word: "by",
      name: "way",
      write: (way) => about.ways[way].id,
      read: (text) => [about.ways.findIndex((way) => way.id === text)].find((way) => way >= 0),
    },
    numberPart("from", "from", 0, end, 3),
    numberPart("to", "to", 0, end, 3),
    numberPart("low", "low", 0, Number.MAX_SAFE_INTEGER),
    numberPart("high", "high", 0, Number.MAX_SAFE_INTEGER),
    numberPart("only", "only", 0, 255),
    choice("view", "below", ["space", "flame"]),
    numberPart("frame", "frame", 0, 2 ** 32),
    flag("native", "native"),
    numberPart("map-zoom", "mapZoom", 1, 4096, 3),
    numberPart("map-scroll", "mapScroll", 0, 2 ** 32),
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

  /** The state that a link is of. */
  read(text) {
    const values = readParts(this.parts, text, this.home);
    if (values.only >= this.about.ways[values.way].names.length) values.only = null;
    return values;
  }

  /** The link to what is looked at. */
  write() {
    return writeParts(this.parts, state, this.home, this.device > 0 ? { device: this.device } : {});
  }

  /** The state may have changed. */
  note() {
    this.address.note(this.write());
  }
}
