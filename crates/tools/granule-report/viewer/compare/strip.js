// One run's memory over time, on the axis and the scale that all runs have.
import { emptied } from "../base/canvas.js";
import { css, SHADES } from "../base/colours.js";
import { element } from "../base/dom.js";
import { formatBytes, formatCount, formatCounted } from "../base/format.js";
import { Plot } from "../base/plot.js";

const SIDE = { left: 76, right: 26, top: 10, bottom: 20 };

export class Strip extends Plot {
  /** `shown` is what all charts show: bins of the axis from and up to, bytes low and high. */
  constructor(run, bins, axis, shown) {
    const label = `Memory over time: ${run.name}. Arrow keys move, plus and minus zoom, comma and full stop choose the place, in all runs.`;
    const canvas = element("canvas", { tabindex: "0", role: "application", "data-testid": "strip", "aria-label": label });
    super(canvas, shown, SIDE);
    Object.assign(this, { run, bins, axis });
    this.readout = element("span", { class: "soft", "data-testid": "strip-readout" });
    this.still = document.createElement("canvas");
    const parts = [`live at most ${formatBytes(run.most)}`];
    if (run.reservedMost > 0) parts.push(`reserved at most ${formatBytes(run.reservedMost)}`);
    if (run.refused > 0) parts.push(`${formatCount(run.refused)} refused`);
    parts.push(`${formatCounted(run.allocations, "allocation")}`);
    const caption = element("div", { class: "caption" }, [
      element("h2", { text: run.name }),
      element("span", { class: "soft", text: parts.join(" · ") }),
      element("div", { class: "spread" }),
      this.readout,
    ]);
    const verdict = run.verdict ? [element("p", { text: run.verdict })] : [];
    const remarks = run.remarks.map((text) => element("p", { class: "soft", text: `Not exact: ${text}` }));
    this.element = element("div", {}, [caption, ...verdict, ...remarks, this.canvas]);
  }

  /** The bin at a place of the canvas; `null` outside of the plot. */
  binAt(x) {
    const { left, width } = this.plot;
    return x >= left && x < left + width ? Math.floor(this.placeAt(x)) : null;
  }

  /** The bins of a column of pixels, as the one at which most was live, and the most reserved bytes. */
  column(x) {
    const { bins, plot } = this;
    const first = Math.floor(this.placeAt(plot.left + x));
    const after = Math.max(Math.floor(this.placeAt(plot.left + x + 1)), first + 1);
    if (first >= bins.count) return null;
    let most = first;
    let reserved = 0;
    for (let bin = first; bin < Math.min(after, bins.count); bin += 1) {
      if (bins.most[bin] > bins.most[most]) most = bin;
      reserved = Math.max(reserved, bins.reserved[bin]);
    }
    return { bin: most, reserved };
  }

  /** Draws all but the cursor, which moves often. */
  prepare(look) {
    const { canvas, still, plot } = this;
    const ratio = window.devicePixelRatio || 1;
    for (const one of [canvas, still]) {
      [one.width, one.height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    }
    const context = still.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.axes(context, look, this.axis.ticks(this.shown.from, this.shown.to, plot.width / 60));
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    const reserved = [];
    for (let x = 0; x < plot.width; x += 1) {
      const column = this.column(x);
      if (!column) break;
      reserved.push(column.reserved);
      let sum = 0;
      this.bins.live.forEach((bytes, category) => {
        const size = bytes[column.bin];
        if (size === 0) return;
        context.fillStyle = css(look.palette[category][SHADES >> 1]);
        const y = this.yOf(sum + size);
        context.fillRect(plot.left + x, y, 1, this.yOf(sum) - y);
        sum += size;
      });
    }
    if (this.run.reservedMost > 0) this.reservedLine(context, look, reserved, (x) => plot.left + x);
    if (this.run.capacity) this.capacityLine(context, look, this.run.capacity);
    context.restore();
    context.fillStyle = look.theme.alarm;
    for (const bin of this.run.refusals) {
      const x = this.xOf(bin);
      if (x >= plot.left && x < plot.left + plot.width) context.fillRect(x - 1, plot.top - 8, 3, 8);
    }
  }

  /** Draws, with the cursor at a bin; `first` is the run that others are compared with. */
  draw(look, cursor, first) {
    const { canvas, still, plot } = this;
    const context = emptied(canvas);
    context.drawImage(still, 0, 0, canvas.clientWidth, canvas.clientHeight);
    this.readout.textContent = cursor === null ? "" : this.describe(cursor, first);
    if (cursor === null) return;
    const x = this.xOf(cursor + 0.5);
    if (x < plot.left || x >= plot.left + plot.width) return;
    context.fillStyle = look.theme.accent;
    context.fillRect(x, plot.top, 1, plot.height);
  }

  /** What there was at a bin, and how much more that is than in the first run. */
  describe(bin, first) {
    const { bins } = this;
    if (bin >= bins.count) return "has ended";
    const parts = [`entry ${formatCount(bins.at[bin])}`, `live ${formatBytes(bins.most[bin])}`];
    if (first !== this && bin < first.bins.count) {
      const more = bins.most[bin] - first.bins.most[bin];
      parts.push(`${more > 0 ? "+" : ""}${formatBytes(more)} against ${first.run.name}`);
    }
    if (this.run.reservedMost > 0) parts.push(`reserved ${formatBytes(bins.reserved[bin])}`);
    return parts.join(" · ");
  }

  /** The category at a point, with its bytes there. */
  at(x, y) {
    const { left, top, height } = this.plot;
    const column = x >= left && y >= top && y < top + height ? this.column(Math.floor(x - left)) : null;
    let low = 0;
    for (let category = 0; column && category < this.bins.live.length; category += 1) {
      const bytes = this.bins.live[category][column.bin];
      if (y < this.yOf(low) && y >= this.yOf(low + bytes)) return { category, bytes };
      low += bytes;
    }
    return null;
  }
}
