// The pointer on the three pictures.
import { factorOf, moveAndZoom, onDrag } from "../base/drag.js";
import { formatBytes } from "../base/format.js";
import { change, redraw, state } from "../data/state.js";
import { hideTip, showTip } from "../base/tip.js";
import { chartTip, lifeTip } from "../panel/words.js";
import { byId } from "../base/dom.js";

export function onChart(chart, view, texts, focus) {
  const { canvas } = chart;
  const names = () => chart.store.about.ways[state.way].names;
  moveAndZoom(chart, view, (event) => {
    const mark = chart.markAt(event.offsetX, event.offsetY);
    if (mark) return view.setMoment(mark.refusal?.at ?? mark.note[0]);
    const found = chart.at(event.offsetX, event.offsetY);
    if (!found) return undefined;
    change({ selected: found.life ?? null });
    return view.setMoment(found.moment);
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = chart.at(event.offsetX, event.offsetY);
    if (found?.life) focus(found.life);
    else view.zoom(0.25, chart.placeAt(event.offsetX));
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = chart.markAt(event.offsetX, event.offsetY) ?? chart.at(event.offsetX, event.offsetY);
    readout(chart, found);
    change({ hovered: found?.life ?? null });
    showTip(event, found && chartTip(found, chart, texts, names()));
  });
  canvas.addEventListener("pointerleave", leave);
}

function leave() {
  hideTip();
  readout(null, null);
  change({ hovered: null });
}

function readout(chart, found) {
  const parts = [];
  if (found?.moment !== undefined) {
    parts.push(chart.store.describe(found.moment), `live ${formatBytes(found.live)}`);
    if (found.least < found.live) parts.push(`least ${formatBytes(found.least)}`);
    if (found.reserved > 0) parts.push(`reserved ${formatBytes(found.reserved)}`);
  }
  byId("chart-readout").textContent = parts.join(" · ");
}

export function onOverview(overview, view) {
  onDrag(overview.canvas, {
    start: (event) => {
      const at = overview.momentAt(event.offsetX);
      const inside = at >= state.from && at <= state.to && state.to - state.from < overview.end;
      return { at, inside, from: state.from, to: state.to };
    },
    move: (x, y, { at, inside, from, to }) => {
      const by = (x / overview.canvas.clientWidth) * overview.end;
      if (inside) view.show(from + by, to + by);
      else view.show(Math.min(at, at + by), Math.max(at, at + by));
    },
    click: (event) => {
      const half = (state.to - state.from) / 2;
      const at = overview.momentAt(event.offsetX);
      view.show(at - half, at + half);
    },
  });
  overview.canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    view.zoom(factorOf(event), overview.momentAt(event.offsetX));
  }, { passive: false });
}

export function onMap(map, texts, focus) {
  const { canvas } = map;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey) change({ mapScroll: map.scroll + event.deltaY + event.deltaX });
    else change(map.zoomed(1 / factorOf(event), event.offsetY));
  }, { passive: false });
  onDrag(canvas, {
    start: () => map.scroll,
    move: (x, y, scroll) => change({ mapScroll: Math.max(scroll - y, 0) }),
    click: (event) => change({ selected: map.at(event.offsetX, event.offsetY)?.life ?? null }),
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = map.at(event.offsetX, event.offsetY);
    if (found?.life) focus(found.life);
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = map.at(event.offsetX, event.offsetY);
    change({ hovered: found?.life ?? null });
    showTip(event, found && mapTip(map, found, texts));
  });
  canvas.addEventListener("pointerleave", leave);
}

export function onFlame(flame) {
  const { canvas } = flame;
  const scroll = (to) => {
    flame.scroll = to;
    redraw("scroll");
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    scroll(flame.scroll + event.deltaY);
  }, { passive: false });
  onDrag(canvas, {
    start: () => flame.scroll,
    move: (x, y, before) => scroll(before - y),
    click: (event) => {
      const found = flame.at(event.offsetX, event.offsetY);
      if (found) change({ frame: found.node });
    },
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = flame.at(event.offsetX, event.offsetY);
    showTip(event, found && flame.tip(found));
  });
  canvas.addEventListener("pointerleave", hideTip);
}

function mapTip(map, found, texts) {
  if (found.life) {
    const address = map.store.formatAddress(found.life.address);
    return [...lifeTip(found.life, texts), found.waiting ? `${address}, given back, waits for another stream` : address];
  }
  if (!found.free) return null;
  const { address, size, span } = found.free;
  const where = `${map.store.formatAddress(address)}, ${texts.stream(span.stream)}, ${texts.pool(span.pool)}`;
  const reserved = `in ${formatBytes(span.size)} reserved at ${map.store.formatAddress(span.address)}`;
  return [`${formatBytes(size)} free`, where, reserved];
}
