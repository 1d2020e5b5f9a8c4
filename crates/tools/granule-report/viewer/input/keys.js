// The keyboard, and the help that tells of it.
import { byId, isTyped } from "../base/dom.js";
import { fillHelp, openHelp } from "../base/help.js";
import { WINDOW_KEYS } from "../base/window.js";
import { change, state } from "../data/state.js";

const KEYS = [
  ...WINDOW_KEYS,
  ["0", "the whole run"],
  [", .", "one entry back or forward; < > a hundred"],
  ["m", "the moment at which most was live"],
  ["o O", "the next or the last refused request"],
  ["n N", "the next or the last iteration"],
  ["1 … 6", "colour by call site, size, stream, pool, label, age"],
  ["Enter", "zoom to the selected allocation (also: double click)"],
  ["e", "what happened around the moment"],
  ["f", "address space or flame graph"],
  ["/", "search"],
  ["s", "save the picture or a table, or copy the link"],
  ["t", "light or dark"],
  ["Esc", "close, zoom out of the flame graph, deselect, show all categories again"],
  ["?", "this help"],
];

const TEXTS = [
  "Every column of the chart shows one real moment: the one in it at which most was live. The thin dark line is the least " +
    "that was live in that column. Zoom in until each allocation is to be seen; what is too small to be drawn is drawn " +
    "together, paler, on top of its category.",
  "The map shows the memory reserved from the device at the chosen moment. Addresses keep their places. Grey is free; " +
    "striped blocks are given back and wait for another stream; a fine line is memory reserved at other times only.",
  "The flame graph shows what is live at the chosen moment: the outermost frame at the top, below it what it called, each as " +
    "wide as its bytes. Click a frame to zoom in; a search for a name marks its frames.",
  "The address of the page holds the moment, the colours, the zoom and what is open: copy it to show somebody the same.",
  "Drag to move, turn the wheel to zoom, click to choose the moment and keep an allocation.",
];

/** What the keys do, and the help that says so; `app` has the window, the marks and the panels. */
export function onKeys(app) {
  fillHelp(KEYS, TEXTS);
  document.addEventListener("keydown", (event) => {
    if (isTyped(event)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const action = actionOf(event, app);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionOf(event, app) {
  const { view, about } = app;
  const onButton = event.target instanceof HTMLButtonElement;
  const actions = {
    ...view.actions(event),
    ",": () => view.setMoment(state.moment - 1),
    ".": () => view.setMoment(state.moment + 1),
    "<": () => view.setMoment(state.moment - 100),
    ">": () => view.setMoment(state.moment + 100),
    m: () => view.setMoment(about.most.at),
    o: () => app.toMark(about.refusals.map((one) => one.at), 1),
    O: () => app.toMark(about.refusals.map((one) => one.at), -1),
    n: () => app.toMark(about.iterations.map((one) => one[0]), 1),
    N: () => app.toMark(about.iterations.map((one) => one[0]), -1),
    e: () => change({ tab: "events" }),
    "/": () => app.openTab("search"),
    f: () => change({ below: state.below === "space" ? "flame" : "space" }),
    s: () => byId("save").showModal(),
    t: () => app.switchTheme(),
    "?": openHelp,
    Escape: () => app.clear(),
    Enter: onButton ? null : () => state.selected && app.focus(state.selected),
  };
  if (/^[1-6]$/.test(event.key)) return () => change({ way: Number(event.key) - 1, only: null });
  return actions[event.key];
}
