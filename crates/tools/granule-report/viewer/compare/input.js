// The keyboard and the pointer on the charts of several runs, which move and zoom together.
import { byId, isTyped } from "../base/dom.js";
import { moveAndZoom } from "../base/drag.js";
import { formatBytes } from "../base/format.js";
import { fillHelp, openHelp } from "../base/help.js";
import { hideTip, showTip } from "../base/tip.js";
import { WINDOW_KEYS } from "../base/window.js";

const KEYS = [
  ...WINDOW_KEYS,
  ["0", "all of the runs"],
  [", .", "move the cursor; < > further"],
  ["t", "light or dark"],
  ["Esc", "take the cursor away"],
  ["?", "this help"],
];

const TEXTS = [
  "Each run has a chart of its own, and all have one scale of bytes and one axis of time. A place on the axis is the same place " +
    "in every run: point at it, or click to keep it.",
  "Drag to move, turn the wheel to zoom: all charts show the same part. Where the page is longer than the screen, turn the wheel " +
    "beside the charts.",
  "The lines beside a chart say what is live there, and how much more than in the first run. The table below has the call sites " +
    "that differ most.",
  "The address of the page holds the place that you keep and the part that is shown: copy it to show somebody the same.",
];

/** How many columns of pixels the cursor goes further with Shift. */
const FAR = 20;

/** What the keys, the buttons and the pointer do to a page of several runs. */
export function onComparison(page) {
  fillHelp(KEYS, TEXTS);
  const { view } = page;
  const press = (id, action) => byId(id).addEventListener("click", action);
  press("zoom-all", () => view.whole());
  press("zoom-in", () => view.zoom(0.5));
  press("zoom-out", () => view.zoom(2));
  for (const strip of page.strips) onStrip(strip, page);
  document.addEventListener("keydown", (event) => {
    const action = isTyped(event) ? null : actionOf(event, page);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionOf(event, page) {
  const { view } = page;
  const step = (by) => () => page.step(by * (event.shiftKey ? FAR : 1));
  return {
    ...view.actions(event),
    ",": step(-1),
    ".": step(1),
    "<": step(-1),
    ">": step(1),
    t: () => page.switchTheme(),
    "?": openHelp,
    Escape: () => page.keep(null),
  }[event.key];
}

function onStrip(strip, page) {
  const { canvas } = strip;
  moveAndZoom(strip, page.view, (event) => page.keep(strip.binAt(event.offsetX)));
  canvas.addEventListener("dblclick", (event) => page.view.zoom(0.25, strip.placeAt(event.offsetX)));
  canvas.addEventListener("pointermove", (event) => {
    page.point(strip.binAt(event.offsetX));
    const found = strip.at(event.offsetX, event.offsetY);
    showTip(event, found && [page.about.categories[found.category], `${formatBytes(found.bytes)} in ${strip.run.name}`]);
  });
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    page.point(null);
  });
}
