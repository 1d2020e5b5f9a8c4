// The time axis that all runs have.
import { formatCount } from "../base/format.js";

export class Axis {
  constructor({ axis, bins }) {
    this.bins = bins;
    this.byIteration = axis.by === "iteration";
    this.pieces = this.byIteration ? axis.pieces : 100;
    // Before the first iteration.
    this.lead = this.byIteration && axis.lead ? 1 : 0;
  }

  /** What it is, for the reader. */
  get text() {
    const what = this.byIteration
      ? "by iteration, counted from each file's first mark"
      : "by share of entries: 0 % is each run's first entry, 100 % its last";
    return `Time axis ${what}. One scale of bytes. Point at a chart for the same place in all; click to keep it. Press ? for the keys.`;
  }

  /** A place, of the axis' bins, as text. */
  place(bin) {
    const at = (bin * this.pieces) / this.bins;
    if (!this.byIteration) return `${at.toFixed(1)} %`;
    return at < this.lead ? "before iteration 1" : `iteration ${formatCount(Math.floor(at) - this.lead + 1)}`;
  }

  /** Places with a name, not more than `most`: the part of the width, and the name. */
  ticks(most) {
    const whole = this.pieces - this.lead;
    const step = [1, 2, 5].flatMap((by) => [by, by * 10, by * 100, by * 1000, by * 1e4, by * 1e5]).sort((a, b) => a - b)
      .find((one) => whole / one <= most);
    const ticks = [];
    for (let at = 0; at < whole || (at === whole && !this.byIteration); at += step) {
      ticks.push([(at + this.lead) / this.pieces, this.byIteration ? formatCount(at + 1) : `${at} %`]);
    }
    return ticks;
  }
}
