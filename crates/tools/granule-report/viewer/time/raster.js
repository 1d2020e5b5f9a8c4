// Draws columns into pixels, and remembers which allocation each pixel is of.
import { mix, shadeOf, SHADES } from "../base/colours.js";

/** In a raster, pixels of what is too small to be drawn by itself: this plus the category. */
export const REST = 0x80000000;

/** Allocations lower than this many pixels are drawn together. */
const SMALLEST = 0.6;

export class Raster {
  constructor() {
    this.ids = new Uint32Array(0);
    this.canvas = document.createElement("canvas");
  }

  /** Fills the raster: place in the columns' allocations plus one, or `REST` and a category, or 0. */
  fill(columns, height, low, high) {
    const { width, live, order, classes, lives, first, after } = columns;
    this.columns = columns;
    [this.width, this.height] = [width, height];
    if (this.ids.length !== width * height) this.ids = new Uint32Array(width * height);
    const { ids } = this;
    ids.fill(0);
    const scale = height / (high - low);
    // Pixels from the bottom; the window may begin above 0.
    const base = new Float64Array(width).fill(-low * scale);
    const top = new Float64Array(width);
    this.drawn = 0;
    this.boxes = [];
    const limit = SMALLEST / scale;
    let next = 0;
    for (let category = 0; category < live.length; category += 1) {
      top.set(base);
      for (; next < order.length && classes[order[next]] === category; next += 1) {
        const life = order[next];
        if (lives.size[life] < limit || first[life] >= after[life]) continue;
        this.drawn += 1;
        this.stack(top, life + 1, first[life], after[life], lives.size[life] * scale);
      }
      const bytes = live[category];
      for (let column = 0; column < width; column += 1) {
        const end = base[column] + bytes[column] * scale;
        this.bar(REST + category, column, top[column], end);
        base[column] = end;
      }
    }
  }

  /** Puts an allocation on top of its columns. */
  stack(top, id, first, after, size) {
    const { width, height, ids } = this;
    let run = { column: first, length: 0, low: 0, high: 0 };
    let longest = run;
    for (let column = first; column < after; column += 1) {
      const low = top[column];
      const high = low + size;
      top[column] = high;
      const from = low > 0 ? Math.round(low) : 0;
      const to = high < height ? Math.round(high) : height;
      for (let y = from; y < to; y += 1) ids[(height - 1 - y) * width + column] = id;
      if (size >= 12) {
        if (from === run.low && to === run.high) run.length += 1;
        else run = { column, length: 1, low: from, high: to };
        if (run.length > longest.length) longest = run;
      }
    }
    // Where a name could be written.
    if (size >= 12 && longest.length > 40 && longest.high - longest.low >= 12) this.boxes.push({ id, ...longest });
  }

  bar(id, column, low, high) {
    const { width, height, ids } = this;
    const from = low > 0 ? Math.round(low) : 0;
    const to = high < height ? Math.round(high) : height;
    for (let y = from; y < to; y += 1) ids[(height - 1 - y) * width + column] = id;
  }

  /** Colours the pixels. `look` has the palette, the paper's colour, and what stands out. */
  paint(look) {
    const { width, height, ids, canvas } = this;
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d");
    if (this.image?.width !== width || this.image?.height !== height) {
      this.image = context.createImageData(width, height);
    }
    const pixels = new Uint32Array(this.image.data.buffer);
    const { colours, rest } = this.colours(look);
    this.painted = colours;
    const half = ((look.paper & 0xfefefe) >>> 1) + 0xff000000;
    for (let y = 0, at = 0; y < height; y += 1) {
      const roomBelow = y + 2 < height;
      for (let x = 0; x < width; x += 1, at += 1) {
        const id = ids[at];
        if (id === 0) {
          pixels[at] = 0;
          continue;
        }
        const colour = id >= REST ? rest[id - REST] : colours[id];
        const above = y > 0 && ids[at - width] !== id;
        const before = x > 0 && ids[at - 1] !== id;
        // A border, where there is room for one.
        const border =
          (above && roomBelow && ids[at + width] === id && ids[at + 2 * width] === id) ||
          (before && id < REST && x + 3 < width && ids[at + 3] === id && (y === 0 || !above) &&
            roomBelow && ids[at + 2 * width] === id && y > 1 && ids[at - 2 * width] === id);
        pixels[at] = border ? ((colour & 0xfefefe) >>> 1) + half : colour;
      }
    }
    context.putImageData(this.image, 0, 0);
  }

  /** The colour of each drawn allocation by id, and of each category's rest. */
  colours({ palette, paper, accent, only, sites, hovered, selected }) {
    const { order, classes, lives, first, after } = this.columns;
    const dimmed = palette.map((shades) => shades.map((shade) => mix(shade, paper, 0.78)));
    const colours = new Uint32Array(lives.count + 1);
    for (const life of order) {
      if (first[life] >= after[life]) continue;
      const category = classes[life];
      const back = (only !== null && category !== only) || (sites && !sites.has(lives.site[life]));
      const colour = (back ? dimmed : palette)[category][shadeOf(lives.index[life])];
      const index = lives.index[life];
      if (selected?.index === index) colours[life + 1] = accent;
      else colours[life + 1] = hovered?.index === index ? mix(colour, accent, 0.45) : colour;
    }
    const rest = palette.map((shades, category) => {
      const back = (only !== null && category !== only) || sites;
      return mix(shades[SHADES >> 1], paper, back ? 0.84 : 0.3);
    });
    return { colours, rest };
  }

  /** What is at a pixel: an allocation's place, the category of a rest, or nothing. */
  at(x, y) {
    if (x < 0 || y < 0 || x >= this.width || y >= this.height) return null;
    const id = this.ids[y * this.width + x];
    if (!id) return null;
    return id >= REST ? { category: id - REST } : { life: id - 1 };
  }
}
