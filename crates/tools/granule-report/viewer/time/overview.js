// The whole run, and which part of it the chart shows.
import { emptied } from "../base/canvas.js";
import { Raster } from "./raster.js";
import { state } from "../data/state.js";

export class Overview {
  constructor(canvas, store, columns) {
    Object.assign(this, { canvas, store, columns });
    this.raster = new Raster();
    this.end = store.about.length + 1;
  }

  draw(look, filled) {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!filled || !this.drawn) {
      const drawn = this.columns.of(0, this.end, width, state.way);
      if (drawn) {
        this.drawn = drawn;
        const { most, reservedMost } = this.store.about;
        this.raster.fill(drawn, Math.floor(height * ratio), 0, 1.05 * Math.max(most.bytes, reservedMost.bytes, 1));
      }
    }
    const context = emptied(canvas);
    if (!this.drawn) return;
    this.raster.paint({ ...look, hovered: null });
    context.imageSmoothingEnabled = false;
    context.drawImage(this.raster.canvas, 0, 0, width, height);
    context.fillStyle = look.theme.alarm;
    for (const { at } of this.store.about.refusals.slice(0, 2000)) context.fillRect(this.xOf(at), 0, 1, height);
    this.window(context, look, width, height);
  }

  window(context, look, width, height) {
    const [from, to] = [this.xOf(state.from), Math.max(this.xOf(state.to), this.xOf(state.from) + 2)];
    context.globalAlpha = 0.65;
    context.fillStyle = look.theme.paper;
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = look.theme.accent;
    context.strokeRect(from + 0.5, 0.5, Math.max(to - from - 1, 1), height - 1);
  }

  xOf(moment) {
    return (moment / this.end) * this.canvas.clientWidth;
  }

  momentAt(x) {
    return (x / this.canvas.clientWidth) * this.end;
  }
}
