// The panel at the side: the moment, the categories at it, and one allocation.
import { classesOf } from "../time/columns.js";
import { css, palette, SHADES } from "../base/colours.js";
import { NEVER } from "../data/store.js";
import { byId, element, fillFigures, tail } from "../base/dom.js";
import { formatBytes, formatCount, formatCounted, formatExact, formatShare, formatTime } from "../base/format.js";
import { momentOf } from "../data/moment.js";
import { change, state } from "../data/state.js";

export class Details {
  constructor(store, texts) {
    Object.assign(this, { store, texts });
  }

  /** The moment's figures and categories. */
  drawMoment() {
    const { store } = this;
    if (document.activeElement !== byId("moment-input")) byId("moment-input").value = formatCount(state.moment);
    const now = momentOf(store, state.moment);
    if (!now) return;
    const time = store.timeOf(state.moment);
    const waiting = now.lives.size.reduce((sum, size, i) => (now.waiting[i] ? sum + size : sum), 0);
    const figures = [["Live", `${formatBytes(now.live)} in ${formatCounted(now.lives.count, "allocation")}`]];
    if (now.reserved > 0) {
      figures.push(["Reserved", formatBytes(now.reserved)]);
      figures.push(["Free in it", `${formatBytes(now.free)} in ${formatCounted(now.pieces, "piece")}`]);
      figures.push(["Largest piece", formatBytes(now.largestPiece)]);
    }
    if (waiting > 0) figures.push(["Waiting for streams", formatBytes(waiting)]);
    if (time !== null) figures.push(["Time", formatTime(time)]);
    fillFigures(byId("moment-figures"), figures);
    this.drawLegend(now);
  }

  drawLegend(now) {
    const way = this.store.about.ways[state.way];
    const classes = classesOf(this.store, now.lives, state.way);
    const bytes = way.names.map(() => 0);
    for (let i = 0; i < now.lives.count; i += 1) if (!now.waiting[i]) bytes[classes[i]] += now.lives.size[i];
    const colours = palette(way, state.dark);
    const entries = way.names.map((name, category) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = css(colours[category][SHADES >> 1]);
      const share = formatShare(bytes[category], now.live);
      return element(
        "button",
        {
          class: "entry",
          title: `${name}: ${formatBytes(bytes[category])}, ${share}. Press to make the others stand back.`,
          "aria-pressed": String(state.only === category),
          "data-testid": `category-${category}`,
          onclick: () => change({ only: state.only === category ? null : category }),
        },
        [
          swatch,
          tail("name", name),
          element("span", { class: "soft", text: bytes[category] > 0 ? share : "" }),
          element("span", { text: bytes[category] > 0 ? formatBytes(bytes[category]) : "–" }),
        ],
      );
    });
    byId("legend").replaceChildren(...entries);
  }

  /** The allocation under the pointer, else the selected one. */
  drawAllocation() {
    const life = state.hovered ?? state.selected;
    const panel = byId("allocation");
    if (!life) {
      panel.replaceChildren(element("p", { class: "soft", text: HINT }));
      return;
    }
    const list = element("dl", { class: "figures" });
    fillFigures(list, this.figures(life));
    const heading = state.hovered || !state.selected ? "Allocation" : "Selected allocation";
    panel.replaceChildren(element("h2", { text: heading }), list, this.stack(this.texts.siteStack(life.site)));
  }

  figures(life) {
    const { store, texts } = this;
    const figures = [["Size", formatExact(life.size)]];
    if (store.about.spans > 0) figures.push(["Address", store.formatAddress(life.address)]);
    const end = Math.min(life.end, store.about.length + 1);
    figures.push(["From", life.begin === 0 ? "before the history" : store.describe(life.begin)]);
    figures.push(["To", life.end === NEVER ? "the end of the run" : store.describe(life.end)]);
    const waited = life.reusable > life.end ? Math.min(life.reusable, store.about.length) - life.end : 0;
    const wait = waited > 1 ? `, then waited ${formatCount(waited)}` : "";
    figures.push(["Lived", `${formatCount(end - life.begin)} entries${wait}`]);
    figures.push(["Stream", texts.stream(life.stream)], ["Pool", texts.pool(life.pool)]);
    if (texts.label(life.label)) figures.push(["Label", texts.label(life.label)]);
    return figures;
  }

  /** Frames, innermost first. Native ones are folded where there are others: few people look for them. */
  stack(frames) {
    if (!this.texts.ready) {
      this.texts.want();
      return element("p", { class: "soft", text: "…" });
    }
    if (frames.length === 0) return element("p", { class: "soft", text: "No stack was recorded." });
    const python = frames.filter((frame) => frame.python);
    const native = frames.filter((frame) => !frame.python);
    const list = frameList(python.length > 0 ? python : native);
    if (python.length === 0 || native.length === 0) return list;
    const all = element("details", { class: "soft" }, [
      element("summary", { text: `whole stack, with ${formatCount(native.length)} native frames` }),
      frameList(frames),
    ]);
    return element("div", {}, [list, all]);
  }
}

function frameList(frames) {
  const items = frames.map((frame) => {
    const kind = frame.own ? "own" : frame.python ? "" : "native";
    const where = frame.line > 0 ? `${frame.file}:${frame.line}` : frame.file;
    return element("li", { class: kind }, [`${frame.name} `, element("span", { class: "file", text: where })]);
  });
  return element("ol", { class: "stack", "data-testid": "stack" }, items);
}

const HINT = "Point at an allocation to see what it is and where it was asked for; click to keep it. Press ? for the keys.";
