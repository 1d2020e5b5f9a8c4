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
    return `Time axis ${what}. One scale of bytes. Point at a chart for the same place in all; click to keep it; turn the wheel to look closer. Press ? for the keys.`;
  }

  /** A place, of the axis' bins, as text. */
  place(bin) {
    const at = (bin * this.pieces) / this.bins;
    if (!this.byIteration) return `${at.toFixed(2)} %`;
    return at < this.lead ? "before iteration 1" : `iteration ${formatCount(Math.floor(at) - this.lead + 1)}`;
  }

  /** Places with a name from one bin up to another, not more than `most`: each with its bin. */
  ticks(from, to, most) {
    const scale = this.pieces / this.bins;
    const [first, last] = [from * scale - this.lead, to * scale - this.lead];
    const powers = this.byIteration ? [1, 10, 100, 1000, 1e4, 1e5] : [0.01, 0.1, 1, 10];
    const steps = powers.flatMap((power) => [power, 2 * power, 5 * power]);
    const step = steps.find((one) => (last - first) / one <= most) ?? steps.at(-1);
    const ticks = [];
    for (let count = Math.max(Math.ceil(first / step), 0); count * step <= last; count += 1) {
      const at = count * step;
      // Nothing begins where the last iteration ends.
      if (this.byIteration && at >= this.pieces - this.lead) break;
      const unit = ticks.length === 0 ? "iteration " : "";
      ticks.push([(at + this.lead) / scale, this.byIteration ? `${unit}${formatCount(at + 1)}` : `${Number(at.toFixed(2))} %`]);
    }
    return ticks;
  }
}
