// What is looked at, and who wants to know when that changes.
import { LIFE_COLUMNS } from "./store.js";

/** The one state of the page. Change it with `change` only. */
export const state = {
  /** Window of the chart: moments from and up to, bytes low and high. */
  from: 0,
  to: 1,
  low: 0,
  high: 1,
  /** Whose memory the map shows. */
  moment: 0,
  /** Index in the ways of colouring. */
  way: 0,
  /** Category that the others stand back for; `null` for none. */
  only: null,
  /** Call sites that others stand back for; `null` for none. */
  sites: null,
  /** Allocations, as objects; see `lifeAt`. */
  hovered: null,
  selected: null,
  mapZoom: 1,
  mapScroll: 0,
  /** Whether the map leaves out what is not reserved at the moment. */
  mapCompact: false,
  /** Which picture is below the chart: `space` or `flame`. */
  below: "space",
  /** The open panel. */
  tab: "moment",
  /** What is searched for, as it was typed. */
  query: "",
  /** The frame that is as wide as the flame graph, 0 for all; see `FrameTree`. */
  frame: 0,
  /** Whether the flame graph has native frames where there are Python's. */
  native: false,
  dark: false,
};

const watchers = [];

/** Calls `watcher` with the set of names that have changed, at most once a frame. */
export function watch(watcher) {
  watchers.push(watcher);
}

const changed = new Set();
let waiting = false;

export function change(values) {
  for (const [name, value] of Object.entries(values)) {
    if (state[name] !== value) {
      state[name] = value;
      changed.add(name);
    }
  }
  if (changed.size > 0) request();
}

/** Something else has changed that is drawn: data has come, or the window has another size. */
export function redraw(what) {
  changed.add(what);
  request();
}

function request() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const names = new Set(changed);
    changed.clear();
    for (const watcher of watchers) watcher(names);
  });
}

/** One allocation out of columns. */
export function lifeAt(lives, at) {
  const life = {};
  for (const name of LIFE_COLUMNS) {
    life[name] = lives[name][at];
  }
  return life;
}
