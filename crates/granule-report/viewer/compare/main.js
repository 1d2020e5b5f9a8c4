// Puts the page of several runs together.
import { readBins } from "../base/bins.js";
import { Reader, sectionText, unpack, whenThere } from "../base/bytes.js";
import { css, palette, SHADES, themeColours } from "../base/colours.js";
import { byId, element } from "../base/dom.js";
import { formatBytes } from "../base/format.js";
import { fillHelp, openHelp } from "../base/help.js";
import { topOf } from "../base/scale.js";
import { hideTip, showTip } from "../base/tip.js";
import { csvFile, saveFile } from "../share/file.js";
import { Address } from "../share/address.js";
import { savePng } from "../share/picture.js";
import { Axis } from "./axis.js";
import { Strip } from "./strip.js";
import { fillTable, tableRows } from "./table.js";

const KEYS = [
  ["← →", "move the cursor; with Shift further"],
  ["t", "light or dark"],
  ["Esc", "take the cursor away"],
  ["?", "this help"],
];

const TEXTS = [
  "Each run has a chart of its own, and all have one scale of bytes and one axis of time. A place on the axis is the same place " +
    "in every run: point at it, or click to keep it.",
  "The lines beside a chart say what is live there, and how much more than in the first run. The table below has the call sites " +
    "that differ most.",
  "The address of the page holds the place that you keep: copy it to show somebody the same.",
];

class Page {
  async start() {
    this.about = JSON.parse(new TextDecoder().decode(await unpack(sectionText("about"))));
    const { about } = this;
    this.axis = new Axis(about);
    this.address = new Address();
    const most = Math.max(...about.runs.map((run) => Math.max(run.most, run.reservedMost)), 1);
    this.top = topOf(most, about.runs.map((run) => run.capacity));
    this.strips = await Promise.all(about.runs.map((run, index) => this.strip(run, index)));
    byId("title").textContent = about.title;
    byId("summary").textContent = `${about.runs.length} runs`;
    byId("axis").textContent = this.axis.text;
    byId("strips").append(...this.strips.map((strip) => strip.element));
    fillTable(about);
    fillHelp(KEYS, TEXTS);
    this.listen();
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.setTheme(dark.matches));
    this.cursor = this.kept = linked(this.axis.bins);
    this.setTheme(dark.matches);
  }

  async strip(run, index) {
    const reader = new Reader(await unpack(await whenThere(`run-${index}`)));
    return new Strip(run, readBins(reader, this.about.categories.length), this.axis, this.top);
  }

  listen() {
    byId("theme").addEventListener("click", () => this.setTheme(!this.look.dark));
    byId("save-picture").addEventListener("click", () => this.savePicture());
    byId("save-table").addEventListener("click", () => saveFile(`${this.about.title}.csv`, csvFile(tableRows(this.about))));
    for (const strip of this.strips) this.listenTo(strip);
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("popstate", () => this.back());
    new ResizeObserver(() => this.prepare()).observe(byId("strips"));
  }

  listenTo(strip) {
    const { canvas } = strip;
    canvas.addEventListener("pointermove", (event) => {
      this.move(strip.binAt(event.offsetX) ?? this.kept);
      const found = strip.at(event.offsetX, event.offsetY);
      if (found) showTip(event, [this.about.categories[found.category], `${formatBytes(found.bytes)} in ${strip.run.name}`]);
      else hideTip();
    });
    canvas.addEventListener("pointerleave", () => {
      hideTip();
      this.move(this.kept);
    });
    canvas.addEventListener("click", (event) => this.link(strip.binAt(event.offsetX)));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "?") openHelp();
    else if (event.key === "t") this.setTheme(!this.look.dark);
    else if (event.key === "Escape") this.link(null);
    else if (by) {
      event.preventDefault();
      const pixel = Math.ceil(this.axis.bins / this.strips[0].plot.width);
      this.link(Math.min(Math.max((this.cursor ?? 0) + by * (event.shiftKey ? 20 : 1) * pixel, 0), this.axis.bins - 1));
    }
  }

  /** Keeps a place, and has it in the page's address. */
  link(cursor) {
    this.keep(cursor);
    this.address.note(addressOf(cursor));
  }

  /** The reader went back or forward to another address. */
  back() {
    this.keep(linked(this.axis.bins));
    this.address.open(addressOf(this.kept));
  }

  keep(cursor) {
    this.kept = cursor;
    this.move(cursor);
  }

  /** Draws once a frame, however often the pointer moves. */
  move(cursor) {
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  setTheme(dark) {
    document.documentElement.classList.toggle("dark", dark);
    const { categories, rest, runs } = this.about;
    const theme = themeColours();
    this.look = { theme, dark, palette: palette({ names: categories, ordered: false, rest }, dark) };
    this.keys = [
      ...categories.map((name, index) => [css(this.look.palette[index][SHADES >> 1]), name]),
      ...(runs.some((run) => run.reservedMost > 0) ? [[theme.reserved, "reserved"]] : []),
      ...(runs.some((run) => run.capacity && run.capacity <= this.top) ? [[theme.capacity, "capacity"]] : []),
      ...(runs.some((run) => run.refused > 0) ? [[theme.alarm, "refused"]] : []),
    ];
    byId("legend").replaceChildren(...this.keys.map(([colour, text]) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = colour;
      return element("span", {}, [swatch, text]);
    }));
    this.prepare();
  }

  prepare() {
    for (const strip of this.strips) strip.prepare(this.look);
    this.draw();
  }

  draw() {
    for (const strip of this.strips) strip.draw(this.look, this.cursor, this.strips[0]);
    byId("summary").textContent = `${this.about.runs.length} runs${this.cursor === null ? "" : ` · at ${this.axis.place(this.cursor)}`}`;
    this.publish();
  }

  savePicture() {
    savePng(`${this.about.title}.png`, {
      title: this.about.title,
      subtitle: this.axis.text.split(". ")[0],
      keys: this.keys,
      parts: this.strips.map(({ run, canvas }) => ({ heading: `${run.name}: live at most ${formatBytes(run.most)}`, canvas })),
      theme: this.look.theme,
    });
  }

  /** What tests and tools can see of the page. */
  publish() {
    window.granule = {
      ready: true,
      current: true,
      dark: this.look.dark,
      cursor: this.cursor,
      top: this.top,
      readouts: this.strips.map((strip) => strip.readout.textContent),
      plots: this.strips.map((strip) => strip.plot),
    };
  }
}

/** The place in the page's address. */
function linked(bins) {
  const text = new URLSearchParams(window.location.hash.slice(1)).get("at");
  return text !== null && /^[0-9]+$/.test(text) && Number(text) < bins ? Number(text) : null;
}

function addressOf(cursor) {
  return cursor === null ? "" : `at=${cursor}`;
}

new Page().start();
