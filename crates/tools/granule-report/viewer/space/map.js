// The address space at one moment.
import { emptied } from "../base/canvas.js";
import { mix, palette, parseColour, shadeOf } from "../base/colours.js";
import { classesOf, rangeOf } from "../time/columns.js";
import { byId } from "../base/dom.js";
import { formatBytes, formatCounted } from "../base/format.js";
import { joined, layOut, pieceAt, place, roundUp } from "./layout.js";
import { momentOf } from "../data/moment.js";
import { lifeAt, state } from "../data/state.js";

const GUTTER = 96;
const ROW = 13;
const GAP = 3;

export class AddressMap {
  constructor(canvas, store) {
    this.canvas = canvas;
    this.store = store;
    const { address, size } = store.classes.areas;
    this.areas = Array.from(address, (one, i) => ({ address: one, size: size[i] }));
    this.total = this.areas.reduce((sum, area) => sum + area.size, 0);
    this.ids = new Uint32Array(0);
    this.strip = document.createElement("canvas");
  }

  /** Whether more addresses were in use over time than a map of them all could show well. */
  get scattered() {
    return this.total > 3 * this.store.about.reservedMost.bytes;
  }

  /** Draws the moment. Keeps what it shows while the moment is being unpacked. */
  draw(look) {
    const { canvas } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width < GUTTER + 50 || height < 20) return;
    const now = momentOf(this.store, state.moment) ?? this.now;
    if (!now) return;
    this.now = now;
    const context = emptied(canvas);
    if (now.spans.length === 0) {
      context.fillStyle = look.theme.soft;
      context.font = "13px system-ui, sans-serif";
      const none = this.store.about.spans === 0 ? "This recording has no addresses." : "No memory is reserved at this moment.";
      context.fillText(none, 16, 24);
      this.ids = new Uint32Array(0);
      return;
    }
    this.arrange(width - GUTTER - 8, height);
    this.cells(now);
    this.paint(context, look, now, height);
    byId("map-readout").textContent = `by address; a row is ${formatBytes(this.layout.perRow)}`;
  }

  /** Lays out the rows, when the room or the zoom is another. */
  arrange(columns, height) {
    const rows = Math.max(Math.floor((height - 4) / (ROW + GAP)), 1);
    const areas = state.mapCompact ? joined(this.now.spans) : this.areas;
    const id = `${columns} ${rows} ${state.mapZoom} ${state.mapCompact ? this.now.at : ""}`;
    if (this.arranged !== id) {
      this.arranged = id;
      const whole = layOut(areas, rows, columns);
      this.layout = state.mapZoom > 1 ? place(areas, roundUp(whole.perRow / state.mapZoom), columns) : whole;
      this.columns = columns;
    }
    this.perRowPixels = ROW + GAP;
    const most = Math.max(this.layout.rows * this.perRowPixels - height + 4, 0);
    this.scroll = Math.min(Math.max(state.mapScroll, 0), most);
    this.firstRow = Math.floor(this.scroll / this.perRowPixels);
    this.rows = Math.min(Math.ceil(height / this.perRowPixels) + 1, this.layout.rows - this.firstRow);
  }

  /** Works out how much of each cell is reserved and taken, and by whom mostly. */
  cells(now) {
    const count = this.columns * this.rows;
    if (this.ids.length !== count) {
      this.ids = new Uint32Array(count);
      [this.taken, this.best, this.held] = [0, 0, 0].map(() => new Float32Array(count));
    }
    for (const array of [this.ids, this.taken, this.best, this.held]) array.fill(0);
    for (const span of now.spans) {
      this.cover(span.address, span.size, (cell, part) => {
        this.held[cell] += part;
      });
    }
    const { lives } = now;
    for (let i = 0; i < lives.count; i += 1) {
      this.cover(lives.address[i], lives.size[i], (cell, part) => {
        this.taken[cell] += part;
        if (part > this.best[cell]) {
          this.best[cell] = part;
          this.ids[cell] = i + 1;
        }
      });
    }
  }

  /** Calls `each` with every cell that the addresses touch, and the part of it that they are. */
  cover(address, size, each) {
    const { pieces, perRow } = this.layout;
    const perCell = perRow / this.columns;
    const end = address + size;
    for (let at = pieceAt(pieces, address); at < pieces.length && pieces[at].address < end; at += 1) {
      const piece = pieces[at];
      const row = piece.row - this.firstRow;
      if (row < 0 || row >= this.rows) continue;
      const from = (piece.x + Math.max(address - piece.address, 0)) / perCell;
      const to = (piece.x + Math.min(end - piece.address, piece.size)) / perCell;
      const last = Math.min(Math.ceil(to), this.columns);
      for (let x = Math.floor(from); x < last; x += 1) {
        each(row * this.columns + x, Math.min(to, x + 1) - Math.max(from, x));
      }
    }
  }

  paint(context, look, now, height) {
    const { columns, rows, strip } = this;
    if (strip.width !== columns || strip.height !== rows) [strip.width, strip.height] = [columns, rows];
    const stripContext = strip.getContext("2d");
    const image = stripContext.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const free = parseColour(look.theme.free);
    const colours = this.colours(look, now);
    for (let cell = 0; cell < pixels.length; cell += 1) {
      if (this.held[cell] === 0) continue;
      const id = this.ids[cell];
      if (id === 0) {
        pixels[cell] = free;
        continue;
      }
      const x = cell % columns;
      const waits = now.waiting[id - 1] && (x & 3) < 2;
      const colour = waits ? free : mix(free, colours[id], Math.max(Math.min(this.taken[cell], 1), 0.2));
      const border = x > 0 && this.ids[cell - 1] !== id && x + 2 < columns && this.ids[cell + 2] === id;
      pixels[cell] = border ? mix(colour, look.paper, 0.55) : colour;
    }
    stripContext.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    this.ghosts(context, look, height);
    for (let row = 0; row < rows; row += 1) {
      const y = this.yOf(row + this.firstRow);
      context.drawImage(strip, 0, row, columns, 1, GUTTER, y, columns, ROW);
    }
    this.addresses(context, look);
  }

  yOf(row) {
    return 3 + row * this.perRowPixels - this.scroll;
  }

  /** Colours by id. Age is that at the moment; in the chart it is the length of the whole life. */
  colours(look, now) {
    const { lives } = now;
    const way = this.store.about.ways[state.way];
    const classes = classesOf(this.store, lives, state.way);
    const shades = palette(way, state.dark);
    const colours = new Uint32Array(lives.count + 1);
    for (let i = 0; i < lives.count; i += 1) {
      const category = way.id === "life" ? rangeOf(way.bounds, now.at - lives.begin[i]) : classes[i];
      const back = (state.only !== null && classes[i] !== state.only) || (state.sites && !state.sites.has(lives.site[i]));
      const colour = shades[category][shadeOf(lives.index[i])];
      const index = lives.index[i];
      if (state.selected?.index === index) colours[i + 1] = look.accent;
      else if (state.hovered?.index === index) colours[i + 1] = mix(colour, look.accent, 0.45);
      else colours[i + 1] = back ? mix(colour, look.paper, 0.78) : colour;
    }
    return colours;
  }

  /** Where memory was or will be reserved. */
  ghosts(context, look) {
    context.fillStyle = look.theme.grid;
    const perCell = this.layout.perRow / this.columns;
    for (const piece of this.layout.pieces) {
      const row = piece.row - this.firstRow;
      if (row < 0 || row >= this.rows) continue;
      const wide = Math.max(piece.size / perCell, 0.5);
      context.fillRect(GUTTER + piece.x / perCell, this.yOf(piece.row) + ROW - 1, wide, 1);
    }
  }

  addresses(context, look) {
    context.fillStyle = look.theme.soft;
    context.font = "10px ui-monospace, monospace";
    context.textAlign = "right";
    let last = -1;
    for (const piece of this.layout.pieces) {
      const row = piece.row - this.firstRow;
      if (row < 0 || row >= this.rows || piece.row === last) continue;
      last = piece.row;
      context.fillText(this.store.formatAddress(piece.address), GUTTER - 8, this.yOf(piece.row) + ROW - 3);
    }
    context.textAlign = "left";
  }

  /** What is at a point: an allocation, free memory, or nothing. */
  at(x, y) {
    if (!this.layout || this.ids.length === 0) return null;
    const row = Math.floor((y - 3 + this.scroll) / this.perRowPixels) - this.firstRow;
    const column = Math.floor(x - GUTTER);
    if (row < 0 || row >= this.rows || column < 0 || column >= this.columns) return null;
    const cell = row * this.columns + column;
    const id = this.ids[cell];
    if (id > 0) return { life: lifeAt(this.now.lives, id - 1), waiting: this.now.waiting[id - 1] === 1 };
    if (this.held[cell] > 0) return { free: this.freeAt(row + this.firstRow, column) };
    return null;
  }

  /** The free piece at a place. */
  freeAt(row, column) {
    const bytes = (column + 0.5) * (this.layout.perRow / this.columns);
    const inRow = this.layout.pieces.filter((piece) => piece.row === row);
    const piece = inRow.find((one) => bytes >= one.x && bytes <= one.x + one.size) ?? inRow[0];
    const address = piece.address + Math.max(bytes - piece.x, 0);
    const span = this.now.spans.find((one) => address >= one.address && address < one.address + one.size);
    if (!span) return null;
    let [from, to] = [span.address, span.address + span.size];
    const { lives, ends } = this.now;
    for (let i = 0; i < lives.count; i += 1) {
      const end = ends[i];
      if (end <= address && end > from) from = end;
      if (lives.address[i] > address && lives.address[i] < to) to = lives.address[i];
    }
    return { address: from, size: to - from, span };
  }

  /** Zooms so that what is at a height stays there. */
  zoomed(factor, y) {
    const zoom = Math.min(Math.max(state.mapZoom * factor, 1), 4096);
    const by = zoom / state.mapZoom;
    return { mapZoom: zoom, mapScroll: zoom === 1 ? 0 : Math.max((this.scroll + y) * by - y, 0) };
  }

  /** A sentence about the moment, for those who cannot see the map. */
  describe() {
    if (!this.now) return "";
    const { live, reserved, pieces } = this.now;
    return `${formatBytes(reserved)} reserved, ${formatBytes(live)} live, ${formatCounted(pieces, "free piece")}`;
  }
}

