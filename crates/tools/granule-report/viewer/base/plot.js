// A plot of bytes over an axis of time.
import { line } from "./canvas.js";
import { formatBytes, roundStep } from "./format.js";

export class Plot {
  /** `shown` is what the plot shows: places of the axis from and up to, bytes low and high. `edge` is what is around it. */
  constructor(canvas, shown, edge) {
    Object.assign(this, { canvas, shown, edge });
  }

  /** Where it is in its canvas, in CSS pixels. */
  get plot() {
    const { canvas, edge: { left, right, top, bottom } } = this;
    const height = Math.max(canvas.clientHeight - top - bottom, 10);
    return { left, top, width: Math.max(canvas.clientWidth - left - right, 10), height };
  }

  xOf(place) {
    const { left, width } = this.plot;
    const { from, to } = this.shown;
    return left + ((place - from) / (to - from)) * width;
  }

  yOf(bytes) {
    const { top, height } = this.plot;
    const { low, high } = this.shown;
    return top + height - ((bytes - low) / (high - low)) * height;
  }

  placeAt(x) {
    const { left, width } = this.plot;
    const { from, to } = this.shown;
    return from + ((x - left) / width) * (to - from);
  }

  bytesAt(y) {
    const { top, height } = this.plot;
    const { low, high } = this.shown;
    return low + ((top + height - y) / height) * (high - low);
  }

  /** The scale of bytes, and places with their names. */
  axes(context, look, places) {
    const { left, top, width, height } = this.plot;
    const { low, high } = this.shown;
    context.font = "11px system-ui, sans-serif";
    context.strokeStyle = look.theme.grid;
    context.fillStyle = look.theme.soft;
    context.lineWidth = 1;
    context.textAlign = "right";
    const step = roundStep(high - low, height / 40, true);
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) {
      const y = Math.round(this.yOf(at)) + 0.5;
      line(context, left, y, left + width, y);
      context.fillText(formatBytes(at), left - 8, y + 4);
    }
    context.textAlign = "center";
    for (const [place, name] of places) {
      const x = Math.round(this.xOf(place)) + 0.5;
      line(context, x, top + height, x, top + height + 4);
      context.fillText(name, x, top + height + 16);
    }
    context.textAlign = "left";
  }

  /** What was reserved in each column; `xAt` is where a column begins. */
  reservedLine(context, look, reserved, xAt) {
    context.strokeStyle = look.theme.reserved;
    context.lineWidth = 1.5;
    context.beginPath();
    reserved.forEach((bytes, column) => {
      context.lineTo(xAt(column), this.yOf(bytes));
      context.lineTo(xAt(column + 1), this.yOf(bytes));
    });
    context.stroke();
    context.lineWidth = 1;
  }

  /** The device's capacity; gives its height. */
  capacityLine(context, look, capacity) {
    const { left, width } = this.plot;
    const y = Math.round(this.yOf(capacity)) + 0.5;
    context.strokeStyle = look.theme.capacity;
    context.setLineDash([6, 4]);
    line(context, left, y, left + width, y);
    context.setLineDash([]);
    return y;
  }
}
