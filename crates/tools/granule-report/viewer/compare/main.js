// Puts the page of several runs together.
import { readBins } from "../base/bins.js";
import { Reader, sectionText, unpack, whenThere } from "../base/bytes.js";
import { css, palette, SHADES, themeColours } from "../base/colours.js";
import { byId, element } from "../base/dom.js";
import { formatBytes } from "../base/format.js";
import { topOf } from "../base/scale.js";
import { Window } from "../base/window.js";
import { csvFile, saveFile } from "../share/file.js";
import { Address } from "../share/address.js";
import { savePng } from "../share/picture.js";
import { Axis } from "./axis.js";
import { onComparison } from "./input.js";
import { linked, linkOf } from "./link.js";
import { Strip } from "./strip.js";
import { fillTable, tableRows } from "./table.js";

/** The least bins that the charts show. */
const LEAST_BINS = 16;

class Page {
  async start() {
    this.about = JSON.parse(new TextDecoder().decode(await unpack(sectionText("about"))));
    const { about } = this;
    this.axis = new Axis(about);
    this.address = new Address();
    const most = Math.max(...about.runs.map((run) => Math.max(run.most, run.reservedMost)), 1);
    this.top = topOf(most, about.runs.map((run) => run.capacity));
    this.home = { from: 0, to: this.axis.bins, low: 0, high: this.top };
    this.shown = { ...this.home };
    const bounds = { end: this.axis.bins, top: this.top, least: LEAST_BINS };
    this.view = new Window(bounds, this.shown, (values) => this.show(values));
    this.strips = await Promise.all(about.runs.map((run, index) => this.strip(run, index)));
    byId("title").textContent = about.title;
    byId("axis").textContent = this.axis.text;
    byId("strips").append(...this.strips.map((strip) => strip.element));
    fillTable(about);
    this.listen();
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.setTheme(dark.matches));
    this.cursor = this.kept = null;
    this.open();
    this.setTheme(dark.matches);
  }

  async strip(run, index) {
    const reader = new Reader(await unpack(await whenThere(`run-${index}`)));
    return new Strip(run, readBins(reader, this.about.categories.length), this.axis, this.shown);
  }

  listen() {
    byId("theme").addEventListener("click", () => this.switchTheme());
    byId("save-picture").addEventListener("click", () => this.savePicture());
    byId("save-table").addEventListener("click", () => saveFile(`${this.about.title}.csv`, csvFile(tableRows(this.about))));
    onComparison(this);
    window.addEventListener("popstate", () => this.open());
    new ResizeObserver(() => this.prepare()).observe(byId("strips"));
  }

  /** Shows what the address says. */
  open() {
    const { kept, shown } = linked(this.address.text, this.home);
    this.kept = kept;
    this.point(kept);
    this.show(shown);
    this.address.open(this.link);
  }

  /** The text of the address that leads here. */
  get link() {
    return linkOf(this.kept, this.shown, this.home);
  }

  /** Shows another part of the runs. */
  show(values) {
    Object.assign(this.shown, values);
    this.stale = true;
    this.request();
    this.address.note(this.link);
  }

  /** Keeps a place. */
  keep(place) {
    this.kept = place;
    this.point(place);
    this.address.note(this.link);
  }

  /** Moves the place that is kept by columns of pixels. */
  step(columns) {
    const { from, to } = this.shown;
    const pixel = Math.ceil((to - from) / this.strips[0].plot.width);
    const place = Math.min(Math.max((this.cursor ?? Math.floor(from)) + columns * pixel, 0), this.axis.bins - 1);
    this.keep(place);
    this.view.follow(place);
  }

  /** Has the cursor at a place, or where it was kept. */
  point(place) {
    const cursor = place ?? this.kept;
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    this.request();
  }

  /** Draws once a frame, however often the pointer moves. */
  request() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      if (this.stale) this.prepare();
      else this.draw();
    });
  }

  switchTheme() {
    this.setTheme(!this.look.dark);
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
    this.stale = false;
    for (const strip of this.strips) strip.prepare(this.look);
    this.draw();
  }

  draw() {
    for (const strip of this.strips) strip.draw(this.look, this.cursor, this.strips[0]);
    const { cursor, axis } = this;
    const parts = [`${this.about.runs.length} runs`, ...this.part, ...(cursor === null ? [] : [`at ${axis.place(cursor)}`])];
    byId("summary").textContent = parts.join(" · ");
    this.publish();
  }

  /** Which part of the runs is shown, where that is not all. */
  get part() {
    const { from, to } = this.shown;
    if (to - from >= this.axis.bins) return [];
    const [first, last] = [from, Math.ceil(to) - 1].map((place) => this.axis.place(place));
    return [first === last ? first : `${first} to ${last}`];
  }

  savePicture() {
    savePng(`${this.about.title}.png`, {
      title: this.about.title,
      subtitle: [this.axis.text.split(". ")[0], ...this.part].join(" · "),
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
      view: { ...this.shown },
      readouts: this.strips.map((strip) => strip.readout.textContent),
      plots: this.strips.map((strip) => strip.plot),
    };
  }
}

new Page().start();
