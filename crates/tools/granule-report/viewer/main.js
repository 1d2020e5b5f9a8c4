// Puts the page together and draws it when something has changed.
import { AddressMap } from "./space/map.js";
import { Chart } from "./time/chart.js";
import { Columns, heightOf } from "./time/columns.js";
import { palette, parseColour, themeColours } from "./base/colours.js";
import { Store } from "./data/store.js";
import { momentOf } from "./data/moment.js";
import { Details } from "./panel/details.js";
import { EventList } from "./panel/events.js";
import { byId, choose, element } from "./base/dom.js";
import { formatBytes, formatCount } from "./base/format.js";
import { Flame } from "./flame/flame.js";
import { onKeys } from "./input/keys.js";
import { Overview } from "./time/overview.js";
import { Link } from "./share/link.js";
import { fillSave } from "./share/save.js";
import { onChart, onFlame, onMap, onOverview } from "./input/pointer.js";
import { Search } from "./panel/search.js";
import { change, redraw, state, watch } from "./data/state.js";
import { fillDevices, fillLines, fillRun, fillVerdict, fillWhatIf } from "./panel/tables.js";
import { Texts } from "./data/texts.js";
import { RunWindow } from "./time/window.js";

/** What changes which picture. */
const CHART = ["from", "to", "low", "high", "way", "data", "size"];
const MAP = ["moment", "way", "data", "size", "mapZoom", "mapScroll", "mapCompact", "below"];
const FLAME = ["moment", "data", "size", "texts", "sites", "query", "frame", "native", "dark", "below", "scroll"];
const COLOURS = ["only", "sites", "hovered", "selected", "dark", "texts"];

class App {
  async start() {
    this.store = new Store(() => redraw("data"));
    this.texts = new Texts(this.store, () => redraw("texts"));
    await this.store.open();
    this.about = this.store.about;
    this.view = new RunWindow(this.store);
    const columns = new Columns(this.store);
    this.chart = new Chart(byId("chart"), this.store, this.texts, columns);
    this.overview = new Overview(byId("overview"), this.store, new Columns(this.store));
    this.map = new AddressMap(byId("map"), this.store);
    this.flame = new Flame(byId("flame"), this.store, this.texts);
    this.details = new Details(this.store, this.texts);
    this.events = new EventList(this.store, this.texts, (at) => this.view.setMoment(at));
    this.search = new Search(this.store, this.texts, (life) => this.focus(life));
    this.fill();
    this.listen();
    watch((names) => this.draw(names));
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.setTheme(dark.matches));
    this.setTheme(dark.matches);
    // As many ways of colouring as tell anything: the first that has more than one category.
    const way = Math.max(this.about.ways.findIndex((one) => one.names.length > 1), 0);
    // Why a request was refused is what one looks for first.
    const moment = this.about.refusals[0]?.at ?? this.about.most.at;
    change({ moment, mapCompact: this.map.scattered, way });
    this.view.whole();
    this.link = new Link(this.store);
    this.link.open();
    redraw("data");
  }

  /** What does not change. */
  fill() {
    const { about } = this;
    byId("title").textContent = about.title;
    fillDevices(about.devices, this.store.device);
    const reserved = about.spans > 0 ? ` · reserved at most ${formatBytes(about.reservedMost.bytes)}` : "";
    byId("summary").textContent = `${formatCount(about.length)} entries · live at most ${formatBytes(about.most.bytes)}${reserved}`;
    fillVerdict(about, (at) => this.view.setMoment(at));
    fillLines(about);
    about.ways.forEach((way, index) => {
      const properties = { role: "radio", "data-testid": `way-${way.id}`, text: way.title, title: `Colour by (${index + 1})` };
      byId("ways").append(element("button", { ...properties, onclick: () => change({ way: index, only: null }) }));
    });
    fillWhatIf(about.whatIf);
    fillRun(about, (at) => this.view.setMoment(at));
    fillSave(this);
  }

  listen() {
    const focus = (life) => this.focus(life);
    onChart(this.chart, this.view, this.texts, focus);
    onOverview(this.overview, this.view);
    onMap(this.map, this.texts, focus);
    onFlame(this.flame);
    onKeys(this);
    const press = (id, action) => byId(id).addEventListener("click", action);
    press("zoom-all", () => this.view.whole());
    press("zoom-in", () => this.view.zoom(0.5));
    press("zoom-out", () => this.view.zoom(2));
    press("map-in", () => change(this.map.zoomed(2, 0)));
    press("map-out", () => change(this.map.zoomed(0.5, 0)));
    for (const button of byId("below").children) {
      button.addEventListener("click", () => change({ below: button.dataset.below }));
    }
    press("flame-peak", () => this.view.setMoment(this.about.most.at));
    // Stacks are others then, and may not have the frame.
    byId("flame-native").addEventListener("change", (event) => change({ native: event.target.checked, frame: 0 }));
    press("theme", () => this.switchTheme());
    press("save-open", () => byId("save").showModal());
    press("moment-peak", () => this.view.setMoment(this.about.most.at));
    press("moment-end", () => this.view.setMoment(this.about.length));
    byId("map-compact").addEventListener("change", (event) => change({ mapCompact: event.target.checked, mapScroll: 0 }));
    byId("moment-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const moment = Number(byId("moment-input").value.replace(/[^0-9]/g, ""));
      byId("moment-input").blur();
      this.view.setMoment(moment);
    });
    byId("search-form").addEventListener("submit", (event) => event.preventDefault());
    let waiting = 0;
    byId("search-input").addEventListener("input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => change({ query: event.target.value }), 200);
    });
    for (const tab of byId("tabs").children) tab.addEventListener("click", () => this.openTab(tab.dataset.tab));
    new ResizeObserver(() => redraw("size")).observe(byId("chart"));
  }

  draw(names) {
    const began = performance.now();
    const any = (list) => list.some((name) => names.has(name));
    if (names.has("way") || !this.look) choose(byId("ways").children, byId("ways").children[state.way], "aria-checked");
    this.drawControls(names);
    this.look = this.currentLook();
    if (any(CHART) || any(COLOURS) || names.has("moment")) this.chart.draw(this.look, !any(CHART));
    if (any(CHART) || any(["only", "sites", "selected", "dark"])) {
      this.overview.draw(this.look, !any(["way", "data", "size"]));
    }
    if (state.below === "space" && (any(MAP) || any(COLOURS))) this.map.draw(this.look);
    if (state.below === "flame" && any(FLAME)) this.flame.draw(this.look);
    if (any(["moment", "way", "only", "dark", "data"])) this.details.drawMoment();
    if (state.tab === "events" && any(["tab", "moment", "data", "texts"])) this.events.draw();
    if (any(["hovered", "selected", "texts", "dark"]) || !this.shown) this.details.drawAllocation();
    this.finishFocus();
    this.shown ||= Boolean(this.chart.drawn && this.overview.drawn && momentOf(this.store, state.moment));
    // Stacks are wanted as soon as the first picture is there.
    if (this.shown) this.texts.want();
    this.link.note();
    this.publish(performance.now() - began);
  }

  /** Buttons, fields and panels as the state has them. */
  drawControls(names) {
    byId("map-compact").checked = state.mapCompact;
    byId("flame-native").checked = state.native;
    if (names.has("tab")) this.showTab();
    if (names.has("below")) {
      for (const part of document.querySelectorAll("[data-of]")) part.hidden = part.dataset.of !== state.below;
      const buttons = [...byId("below").children];
      choose(buttons, buttons.find((button) => button.dataset.below === state.below), "aria-checked");
    }
    if (!names.has("query")) return;
    const input = byId("search-input");
    if (document.activeElement !== input) input.value = state.query;
    this.search.start(state.query);
  }

  /** Colours follow from the theme and the way of colouring; what stands out is as the state has it. */
  currentLook() {
    const { dark, way, only, sites, hovered, selected } = state;
    if (this.colours?.dark !== dark || this.colours.way !== way) {
      const theme = themeColours();
      const [paper, accent] = [theme.paper, theme.accent].map(parseColour);
      this.colours = { theme, dark, way, paper, accent, palette: palette(this.about.ways[way], dark) };
    }
    return { ...this.colours, only, sites, hovered, selected };
  }

  /** Shows an allocation from begin to end, and high enough to be seen. */
  focus(life) {
    this.focused = life;
    this.view.showLife(life);
    // The moment that is looked at stays, if the allocation is there.
    if (state.moment < life.begin || state.moment >= life.end) this.view.setMoment(life.begin);
    change({ selected: life, low: 0, high: this.view.top });
    redraw("data");
  }

  /** Its height in the chart is known when its columns are. */
  finishFocus() {
    const { drawn } = this.chart;
    if (!this.focused || !drawn || drawn.from !== state.from || drawn.to !== state.to) return;
    const place = heightOf(drawn, this.focused.index, state.moment);
    if (!place) {
      if (drawn.exact) this.focused = null;
      return;
    }
    const { size } = this.focused;
    this.focused = null;
    if (size < (state.high - state.low) / 20) this.view.showBytes(place.low - 4 * size, place.high + 4 * size);
  }

  toMark(moments, direction) {
    const list = direction > 0 ? moments : [...moments].reverse();
    const next = list.find((at) => (at - state.moment) * direction > 0);
    if (next !== undefined) this.view.setMoment(next);
  }

  openTab(tab) {
    change({ tab });
    this.showTab();
    if (tab !== "search") return;
    byId("search-input").focus();
    byId("search-input").select();
  }

  showTab() {
    const tabs = [...byId("tabs").children];
    choose(tabs, tabs.find((tab) => tab.dataset.tab === state.tab), "aria-selected");
    for (const tab of tabs) byId(tab.getAttribute("aria-controls")).hidden = tab.dataset.tab !== state.tab;
  }

  clear() {
    if (state.below === "flame" && state.frame > 0) change({ frame: 0 });
    else change({ selected: null, only: null, sites: null });
  }

  switchTheme() {
    this.setTheme(!state.dark);
  }

  setTheme(dark) {
    document.documentElement.classList.toggle("dark", dark);
    change({ dark });
  }

  /** What tests and tools can see of the page. */
  publish(frameMs) {
    const { flame } = this;
    window.granule = {
      ready: Boolean(this.shown),
      readyMs: window.granule?.readyMs ?? (this.shown ? performance.now() : undefined),
      view: { from: state.from, to: state.to, low: state.low, high: state.high },
      moment: state.moment,
      way: this.about.ways[state.way].id,
      dark: state.dark,
      selected: state.selected,
      hovered: state.hovered,
      exact: Boolean(this.chart.drawn?.exact),
      current: Boolean(this.chart.drawn?.from === state.from && this.chart.drawn?.to === state.to),
      drawn: this.chart.raster.drawn ?? 0,
      leastContrast: this.chart.leastContrast,
      mapBlocks: this.map.now?.lives.count ?? 0,
      below: state.below,
      tab: state.tab,
      frame: state.frame,
      /** Worked out only where it is asked for. */
      get flame() {
        return state.below === "flame" ? flame.describe() : null;
      },
      frameMs,
    };
  }
}

new App().start();
