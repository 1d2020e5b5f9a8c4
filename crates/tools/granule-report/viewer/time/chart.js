// Memory over time.
import { emptied, line } from "../base/canvas.js";
import { inkOn } from "../base/colours.js";
import { formatBytes, formatCount, roundStep } from "../base/format.js";
import { Plot } from "../base/plot.js";
import { Raster } from "./raster.js";
import { lifeAt, state } from "../data/state.js";

const EDGE = { left: 76, right: 26, top: 20, bottom: 22 };

export class Chart extends Plot {
  constructor(canvas, store, texts, columns) {
    super(canvas, state, EDGE);
    Object.assign(this, { store, texts, columns });
    this.raster = new Raster();
  }

  /** Draws; `filled` says that the raster is still good and only colours have changed. */
  draw(look, filled) {
    const { canvas, plot } = this;
    const ratio = window.devicePixelRatio || 1;
    if (!filled || !this.drawn) {
      const drawn = this.columns.of(state.from, state.to, Math.floor(plot.width), state.way);
      if (drawn) {
        this.drawn = drawn;
        this.raster.fill(drawn, Math.floor(plot.height * ratio), state.low, state.high);
      }
    }
    const context = emptied(canvas);
    this.axes(context, look, this.ticks());
    if (!this.drawn) return;
    this.raster.paint(look);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    // While other sections are being unpacked, what was drawn before is shown where it was.
    const from = this.xOf(this.drawn.from);
    context.drawImage(this.raster.canvas, from, plot.top, this.xOf(this.drawn.to) - from, plot.height);
    this.names(context);
    this.lines(context, look);
    context.restore();
    this.marks(context, look);
  }

  /** Moments with a name. */
  ticks() {
    const step = Math.max(roundStep(state.to - state.from, this.plot.width / 120, false), 1);
    const ticks = [];
    for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step) ticks.push([at, `entry ${formatCount(at)}`]);
    return ticks;
  }

  /** What was reserved, the device's capacity, and the least that was live between two columns. */
  lines(context, look) {
    const { drawn } = this;
    const xAt = (column) => this.xOf(drawn.from + (column * (drawn.to - drawn.from)) / drawn.width);
    if (this.store.about.spans > 0) this.reservedLine(context, look, drawn.reserved, xAt);
    context.strokeStyle = look.theme.ink;
    context.globalAlpha = 0.55;
    context.beginPath();
    for (let column = 0; column < drawn.width; column += 1) {
      // Where nothing changes within a column there is nothing to say.
      if (drawn.least[column] >= drawn.most[column]) continue;
      const y = this.yOf(drawn.least[column]);
      context.moveTo(xAt(column), y);
      context.lineTo(xAt(column + 1), y);
    }
    context.stroke();
    context.globalAlpha = 1;
    const { capacity } = this.store.about;
    if (capacity && capacity <= state.high) {
      const y = this.capacityLine(context, look, capacity);
      context.fillStyle = look.theme.capacity;
      context.fillText(`capacity ${formatBytes(capacity)}`, this.plot.left + 6, y - 4);
    }
  }

  /** Names in the allocations that are large enough on the screen. */
  names(context) {
    const ratio = this.raster.height / this.plot.height;
    const scale = this.plot.width / this.drawn.width;
    context.font = "11px system-ui, sans-serif";
    this.leastContrast = Infinity;
    for (const box of this.raster.boxes) {
      const height = (box.high - box.low) / ratio;
      const width = box.length * scale - 10;
      if (height < 13 || width < 50) continue;
      const life = box.id - 1;
      const { lives } = this.drawn;
      const place = this.texts.place(lives.site[life]) || this.texts.label(lives.label[life]);
      const size = formatBytes(lives.size[life]);
      const name = fitted(context, place, width - context.measureText(`${size} · `).width);
      const text = name ? `${size} · ${name}` : size;
      const x = this.xOf(this.drawn.from) + box.column * scale + 5;
      const y = this.plot.top + (this.raster.height - (box.high + box.low) / 2) / ratio + 4;
      if (context.measureText(text).width > width) continue;
      const { ink, contrast } = inkOn(this.raster.painted[box.id]);
      this.leastContrast = Math.min(this.leastContrast, contrast);
      context.fillStyle = ink;
      context.fillText(text, x, y);
    }
  }

  /** Iterations, refused requests, notes and the chosen moment. */
  marks(context, look) {
    const { left, top, width, height } = this.plot;
    const { about } = this.store;
    const inside = (x) => x >= left - 0.5 && x <= left + width + 0.5;
    context.font = "10px system-ui, sans-serif";
    context.lineWidth = 1;
    context.textAlign = "left";
    let room = -Infinity;
    context.strokeStyle = look.theme.mark;
    context.fillStyle = look.theme.soft;
    for (const [at, number] of visible(about.iterations, (mark) => mark[0])) {
      const x = Math.round(this.xOf(at)) + 0.5;
      if (!inside(x) || x < room) continue;
      line(context, x, top - 6, x, top + height);
      const text = room < 0 ? `iteration ${number}` : `${number}`;
      context.fillText(text, x + 3, top - 6);
      room = x + context.measureText(text).width + 16;
    }
    room = -Infinity;
    context.fillStyle = look.theme.mark;
    for (const [at] of visible(about.notes, (note) => note[0])) {
      const x = this.xOf(at);
      if (!inside(x) || x < room) continue;
      context.fillRect(x - 2, top + height - 6, 4, 6);
      room = x + 6;
    }
    room = -Infinity;
    context.strokeStyle = look.theme.alarm;
    context.fillStyle = look.theme.alarm;
    for (const { at } of visible(about.refusals, (refusal) => refusal.at)) {
      const x = Math.round(this.xOf(at)) + 0.5;
      if (!inside(x) || x < room) continue;
      line(context, x, top, x, top + height);
      triangle(context, x, top);
      room = x + 3;
    }
    const x = Math.round(this.xOf(state.moment)) + 0.5;
    if (inside(x)) {
      context.strokeStyle = look.theme.accent;
      context.fillStyle = look.theme.accent;
      line(context, x, top, x, top + height);
      context.beginPath();
      context.arc(x, top + height, 4, 0, 7);
      context.fill();
    }
  }

  /** What is at a point of the canvas. */
  at(x, y) {
    const { left, top, width, height } = this.plot;
    if (!this.drawn || x < left || y < top || x >= left + width || y >= top + height) return null;
    const { drawn, raster } = this;
    const column = Math.floor(((this.placeAt(x) - drawn.from) / (drawn.to - drawn.from)) * drawn.width);
    const found = raster.at(column, Math.floor(((y - top) / height) * raster.height));
    const inColumn = {
      moment: drawn.at[column],
      live: drawn.most[column],
      least: drawn.least[column],
      reserved: drawn.reserved[column],
    };
    if (!found) return inColumn;
    if (found.life !== undefined) return { ...inColumn, life: lifeAt(drawn.lives, found.life) };
    return { ...inColumn, category: found.category, bytes: drawn.live[found.category][column] };
  }

  /** The refused request or the note whose mark is at a point. */
  markAt(x, y) {
    const { about } = this.store;
    const { top, height } = this.plot;
    const near = (at) => Math.abs(this.xOf(at) - x) < 5;
    if (y < top + 12) {
      const refusal = visible(about.refusals, (one) => one.at).find(({ at }) => near(at));
      if (refusal) return { refusal };
    }
    if (y > top + height - 10) {
      const note = visible(about.notes, (one) => one[0]).find(([at]) => near(at));
      if (note) return { note };
    }
    return null;
  }
}

/** Marks in the window, and one on each side; they are in order. */
function visible(marks, momentOfMark) {
  const first = (moment) => {
    let [low, high] = [0, marks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (momentOfMark(marks[middle]) < moment) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return marks.slice(Math.max(first(state.from) - 1, 0), first(state.to) + 1);
}

function triangle(context, x, y) {
  context.beginPath();
  context.moveTo(x - 5, y - 8);
  context.lineTo(x + 5, y - 8);
  context.lineTo(x, y + 1);
  context.fill();
}

/** A text, or as much of its end as fits: lines of code have there what tells them apart. */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = Math.floor((text.length * width) / context.measureText(text).width) - 1;
  return letters > 5 ? `…${text.slice(-letters)}` : "";
}
