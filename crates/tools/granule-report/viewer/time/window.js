// What the chart of one run shows.
import { topOf } from "../base/scale.js";
import { Window } from "../base/window.js";
import { NEVER } from "../data/store.js";
import { change, state } from "../data/state.js";

/** The least moments that the chart shows. */
const LEAST_MOMENTS = 8;

export class RunWindow extends Window {
  constructor({ about }) {
    const most = Math.max(about.most.bytes, about.reservedMost.bytes, 1);
    super({ end: about.length + 1, top: topOf(most, [about.capacity]), least: LEAST_MOMENTS }, state, change);
  }

  setMoment(at) {
    const moment = Math.min(Math.max(Math.round(at), 0), this.end - 1);
    change({ moment });
    this.follow(moment);
  }

  /** An allocation from its begin to its end, with something around it. */
  showLife(life) {
    const end = life.end === NEVER ? this.end : life.end;
    const around = Math.max((end - life.begin) * 0.25, LEAST_MOMENTS);
    this.show(life.begin - around, end + around);
  }
}
