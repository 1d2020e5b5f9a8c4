// Moving and zooming what charts show.

/** The least bytes that a chart's height shows. */
const LEAST_BYTES = 4096;

/** What the help says of the keys that move and zoom. */
export const WINDOW_KEYS = [
  ["← →", "move in time; with Shift by a whole window"],
  ["↑ ↓", "move up and down"],
  ["+ −", "zoom in time"],
  ["Shift + −", "zoom the height (also: wheel with Shift, or over the scale)"],
];

/** What charts show, kept within what there is: along the axis of time, and bytes. */
export class Window {
  /** There are places up to `end`, and bytes up to `top`; `least` places are shown at least. `shown` has what is shown, and `change` sets it. */
  constructor({ end, top, least }, shown, change) {
    Object.assign(this, { end, top, least, shown, change });
  }

  whole() {
    this.change({ from: 0, to: this.end, low: 0, high: this.top });
  }

  /** Sets the places. A window keeps its width at the borders. */
  show(from, to) {
    const width = Math.min(Math.max(to - from, this.least), this.end);
    const first = Math.min(Math.max((from + to - width) / 2, 0), this.end - width);
    this.change({ from: first, to: first + width });
  }

  showBytes(low, high) {
    const height = Math.min(Math.max(high - low, LEAST_BYTES), this.top);
    const first = Math.min(Math.max((low + high - height) / 2, 0), this.top - height);
    this.change({ low: first, high: first + height });
  }

  /** Zooms by a factor around a place. */
  zoom(factor, around = (this.shown.from + this.shown.to) / 2) {
    const { from, to } = this.shown;
    const width = Math.min(Math.max((to - from) * factor, this.least), this.end);
    const part = (around - from) / (to - from);
    this.show(around - part * width, around + (1 - part) * width);
  }

  zoomBytes(factor, around = (this.shown.low + this.shown.high) / 2) {
    const { low, high } = this.shown;
    const height = Math.min(Math.max((high - low) * factor, LEAST_BYTES), this.top);
    const part = (around - low) / (high - low);
    this.showBytes(around - part * height, around + (1 - part) * height);
  }

  /** Moves by a part of what is shown. */
  move(byWidth, byHeight = 0) {
    const { from, to, low, high } = this.shown;
    const [width, height] = [to - from, high - low];
    this.show(from + byWidth * width, to + byWidth * width);
    this.showBytes(low + byHeight * height, high + byHeight * height);
  }

  /** Moves to a place that is not shown. */
  follow(place) {
    const { from, to } = this.shown;
    if (place >= from && place < to) return;
    const half = (to - from) / 2;
    this.show(place - half, place + half);
  }

  /** What keys do that move and zoom, by key. */
  actions(event) {
    const far = event.shiftKey ? 1 : 0.2;
    return {
      ArrowLeft: () => this.move(-far),
      ArrowRight: () => this.move(far),
      ArrowUp: () => this.move(0, 0.2),
      ArrowDown: () => this.move(0, -0.2),
      "+": () => (event.shiftKey && event.code.startsWith("Numpad") ? this.zoomBytes(0.7) : this.zoom(0.7)),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1 / 0.7),
      "*": () => this.zoomBytes(0.7),
      "_": () => this.zoomBytes(1 / 0.7),
      0: () => this.whole(),
      Home: () => this.whole(),
    };
  }
}
