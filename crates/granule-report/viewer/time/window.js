// Moving and zooming the chart's window.
import { topOf } from "../base/scale.js";
import { NEVER } from "../data/store.js";
import { change, state } from "../data/state.js";

/** The chart's window, kept within the run. */
export class Window {
  constructor(store) {
    const { about } = store;
    this.end = about.length + 1;
    const most = Math.max(about.most.bytes, about.reservedMost.bytes, 1);
    this.top = topOf(most, [about.capacity]);
  }

  whole() {
    change({ from: 0, to: this.end, low: 0, high: this.top });
  }

  /** Sets the moments. A window keeps its width at the borders of the run. */
  show(from, to) {
    const width = Math.min(Math.max(to - from, 8), this.end);
    const first = Math.min(Math.max((from + to - width) / 2, 0), this.end - width);
    change({ from: first, to: first + width });
  }

  showBytes(low, high) {
    const height = Math.min(Math.max(high - low, 4096), this.top);
    const first = Math.min(Math.max((low + high - height) / 2, 0), this.top - height);
    change({ low: first, high: first + height });
  }

  /** Zooms by a factor around a moment. */
  zoom(factor, around = (state.from + state.to) / 2) {
    const width = Math.min(Math.max((state.to - state.from) * factor, 8), this.end);
    const part = (around - state.from) / (state.to - state.from);
    this.show(around - part * width, around + (1 - part) * width);
  }

  zoomBytes(factor, around = (state.low + state.high) / 2) {
    const height = Math.min(Math.max((state.high - state.low) * factor, 4096), this.top);
    const part = (around - state.low) / (state.high - state.low);
    this.showBytes(around - part * height, around + (1 - part) * height);
  }

  /** Moves by a part of what is shown. */
  move(byWidth, byHeight = 0) {
    const [width, height] = [state.to - state.from, state.high - state.low];
    this.show(state.from + byWidth * width, state.to + byWidth * width);
    this.showBytes(state.low + byHeight * height, state.high + byHeight * height);
  }

  setMoment(at) {
    const moment = Math.min(Math.max(Math.round(at), 0), this.end - 1);
    change({ moment });
    if (moment < state.from || moment >= state.to) {
      const half = (state.to - state.from) / 2;
      this.show(moment - half, moment + half);
    }
  }

  /** An allocation from its begin to its end, with something around it. */
  showLife(life) {
    const end = life.end === NEVER ? this.end : life.end;
    const around = Math.max((end - life.begin) * 0.25, 8);
    this.show(life.begin - around, end + around);
  }
}
