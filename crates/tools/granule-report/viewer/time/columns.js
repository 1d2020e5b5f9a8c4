// The columns of a chart: for each pixel the moment in it at which most was live, and what was live then.
//
// A wide window is drawn from the bins of a level, a narrow one from the allocations themselves; both give the same kind of
// columns. While a section is still being unpacked, a coarser level that is there already stands in for it.
import { LIFE_COLUMNS, NEVER, newColumn } from "../data/store.js";

export class Columns {
  constructor(store) {
    this.store = store;
    this.kept = new Map();
  }

  /** Columns of the window's moments, or `null` while nothing is there yet. `way` is one of the ways of colouring. */
  of(from, to, width, way) {
    const { about } = this.store;
    if (to - from <= about.narrow) {
      const set = this.near(from, to);
      if (set) return fromLives(this.store, set, from, to, width, way);
    }
    const wanted = Math.floor(Math.log2((to - from) / width));
    // The finest that has a bin for each pixel; else what is there.
    const levels = about.levels.filter(([shift], i) => shift >= wanted || i === about.levels.length - 1);
    for (const [shift, bins] of levels) {
      const tiles = this.tiles(shift, bins, from, to);
      if (tiles) return fromTiles(this.store, tiles, from, to, width, way);
    }
    return null;
  }

  /** Everything there was in a narrow window, or `null` while it is being unpacked. */
  near(from, to) {
    const leaf = 2 ** this.store.about.leaf;
    const [first, last] = [Math.floor(Math.max(from, 0) / leaf), Math.floor(Math.max(to - 1, 0) / leaf)];
    return this.keep(`near ${first} ${last}`, () => gather(this.store, first, last, leaf));
  }

  /** The tiles of a level that the window touches. */
  tiles(shift, bins, from, to) {
    const { tile } = this.store.about;
    const moments = tile * 2 ** shift;
    const most = Math.floor((bins - 1) / tile);
    const first = Math.min(Math.floor(Math.max(from, 0) / moments), most);
    const last = Math.min(Math.floor(Math.max(to - 1, 0) / moments), most);
    return this.keep(`tiles ${shift} ${first} ${last}`, () => {
      const parts = [];
      for (let index = first; index <= last; index += 1) parts.push(this.store.tile(shift, index));
      if (parts.includes(null)) return null;
      const lives = merge(parts.map((part) => [part.lives]));
      return { shift, from: first * moments, tile, parts, lives };
    });
  }

  /** The last few are kept: moving within them is the common case. */
  keep(id, make) {
    const known = this.kept.get(id);
    if (known) {
      this.kept.delete(id);
      this.kept.set(id, known);
      return known;
    }
    const made = make();
    if (made) {
      this.kept.set(id, made);
      if (this.kept.size > 6) this.kept.delete(this.kept.keys().next().value);
    }
    return made;
  }
}

/** What the leaves and the intervals above them hold, with the live and the reserved bytes at each moment. */
function gather(store, firstLeaf, lastLeaf, leaf) {
  const [from, count] = [firstLeaf * leaf, (lastLeaf + 1 - firstLeaf) * leaf];
  const levels = store.intervalsOf(from, from + count - 1);
  if (!levels) return null;
  const lives = merge(levels.map((level) => level.map((part) => part.lives)));
  const reserved = curve(levels.flat().map((part) => part.spans), from, count);
  return { from, lives, live: curve([lives], from, count), reserved };
}

/** Bytes of all of them at each moment. */
function curve(lists, from, count) {
  const bytes = new Float64Array(count + 1);
  for (const { count: lives, begin, end, size } of lists) {
    for (let i = 0; i < lives; i += 1) {
      const first = Math.max(begin[i] - from, 0);
      const last = Math.min(end[i] - from, count);
      if (last <= first) continue;
      bytes[first] += size[i];
      bytes[last] -= size[i];
    }
  }
  for (let i = 1; i < count; i += 1) bytes[i] += bytes[i - 1];
  return bytes;
}

/** Allocations of several lists in one, by index and each once. The lists of one group follow each other. */
function merge(groups) {
  let merged = { places: new Float64Array(0), lists: [] };
  for (const lists of groups) merged = mergeTwo(merged, lists);
  const { places, lists } = merged;
  const lives = { count: places.length };
  for (const name of LIFE_COLUMNS) {
    const column = newColumn(name, places.length);
    const columns = lists.map((list) => list[name]);
    for (let i = 0; i < places.length; i += 1) {
      const list = Math.floor(places[i] / 2 ** 32);
      column[i] = columns[list][places[i] - list * 2 ** 32];
    }
    lives[name] = column;
  }
  return lives;
}

/** A place is the number of a list times 2^32, and where it is in that list. */
function mergeTwo({ places, lists }, more) {
  const all = [...lists, ...more];
  const added = new Float64Array(more.reduce((sum, list) => sum + list.count, 0));
  let filled = 0;
  more.forEach((list, number) => {
    const base = (lists.length + number) * 2 ** 32;
    for (let i = 0; i < list.count; i += 1) added[filled++] = base + i;
  });
  const indexes = all.map((list) => list.index);
  const indexAt = (place) => {
    const list = Math.floor(place / 2 ** 32);
    return indexes[list][place - list * 2 ** 32];
  };
  const merged = new Float64Array(places.length + added.length);
  let count = 0;
  let [left, right] = [0, 0];
  while (left < places.length || right < added.length) {
    const one = left < places.length ? indexAt(places[left]) : Infinity;
    const other = right < added.length ? indexAt(added[right]) : Infinity;
    if (one <= other) {
      merged[count++] = places[left++];
      if (one === other) right += 1;
    } else merged[count++] = added[right++];
  }
  return { places: merged.subarray(0, count), lists: all };
}

/** The category of each allocation, in one way of colouring. */
export function classesOf(store, lives, wayIndex) {
  lives.classes ??= [];
  if (lives.classes[wayIndex]) return lives.classes[wayIndex];
  const way = store.about.ways[wayIndex];
  const classes = new Uint8Array(lives.count);
  const table = store.classes[way.id];
  for (let i = 0; i < lives.count; i += 1) {
    if (table) classes[i] = table[lives[way.id][i]] ?? 0;
    else {
      const forever = lives.end[i] === NEVER ? Infinity : lives.end[i] - lives.begin[i];
      classes[i] = rangeOf(way.bounds, way.id === "size" ? lives.size[i] : forever);
    }
  }
  lives.classes[wayIndex] = classes;
  return classes;
}

/** Which range a value is in; `bounds` are the first values of all but the first. */
export function rangeOf(bounds, value) {
  let range = 0;
  while (range < bounds.length && value >= bounds[range]) range += 1;
  return range;
}

/** Places of the allocations by category, and within one by index: the order in which they are stacked. */
function orderOf(classes, count, lives, wayIndex) {
  lives.orders ??= [];
  if (lives.orders[wayIndex]) return lives.orders[wayIndex];
  const next = new Uint32Array(count + 1);
  for (const one of classes) next[one + 1] += 1;
  for (let i = 1; i <= count; i += 1) next[i] += next[i - 1];
  const order = new Uint32Array(lives.count);
  for (let i = 0; i < lives.count; i += 1) order[next[classes[i]]++] = i;
  lives.orders[wayIndex] = order;
  return order;
}

function columnsFor(store, lives, from, to, width, way) {
  const { ways } = store.about;
  const classCount = ways[way].names.length;
  const classes = classesOf(store, lives, way);
  return {
    from,
    to,
    width,
    way,
    lives,
    classes,
    order: orderOf(classes, classCount, lives, way),
    at: new Uint32Array(width),
    most: new Float64Array(width),
    least: new Float64Array(width),
    reserved: new Float64Array(width),
    live: Array.from({ length: classCount }, () => new Float64Array(width)),
  };
}

/** Moments of a column: from the first, up to the second. At least one. */
function momentsOf(from, perColumn, column) {
  const first = Math.floor(from + column * perColumn);
  return [first, Math.max(Math.floor(from + (column + 1) * perColumn), first + 1)];
}

function fromLives(store, set, from, to, width, way) {
  const columns = columnsFor(store, set.lives, from, to, width, way);
  const perColumn = (to - from) / width;
  for (let column = 0; column < width; column += 1) {
    const [first, after] = momentsOf(from, perColumn, column);
    let most = first - set.from;
    let least = set.live[most];
    let reserved = 0;
    for (let at = first - set.from; at < after - set.from; at += 1) {
      if (set.live[at] > set.live[most]) most = at;
      if (set.live[at] < least) least = set.live[at];
      if (set.reserved[at] > reserved) reserved = set.reserved[at];
    }
    columns.at[column] = most + set.from;
    columns.most[column] = set.live[most];
    columns.least[column] = least;
    columns.reserved[column] = reserved;
  }
  span(columns);
  const { lives, classes, live, first, after } = columns;
  for (let i = 0; i < lives.count; i += 1) {
    if (first[i] >= after[i]) continue;
    const bytes = live[classes[i]];
    bytes[first[i]] += lives.size[i];
    if (after[i] < width) bytes[after[i]] -= lives.size[i];
  }
  for (const bytes of live) {
    for (let column = 1; column < width; column += 1) bytes[column] += bytes[column - 1];
  }
  return { ...columns, exact: true };
}

function fromTiles(store, set, from, to, width, way) {
  const columns = columnsFor(store, set.lives, from, to, width, way);
  const perColumn = (to - from) / width / 2 ** set.shift;
  const start = (from - set.from) / 2 ** set.shift;
  const count = set.parts.reduce((sum, part) => sum + part.count, 0);
  const before = store.about.ways.slice(0, way).reduce((sum, one) => sum + one.names.length, 0);
  for (let column = 0; column < width; column += 1) {
    const range = momentsOf(start, perColumn, column);
    const [first, after] = [Math.min(range[0], count - 1), Math.min(range[1], count)];
    let most = first;
    let least = Infinity;
    let reserved = 0;
    for (let bin = first; bin < after; bin += 1) {
      const part = set.parts[Math.floor(bin / set.tile)];
      const at = bin % set.tile;
      const high = set.parts[Math.floor(most / set.tile)].most[most % set.tile];
      if (part.most[at] > high) most = bin;
      if (part.least[at] < least) least = part.least[at];
      if (part.reserved[at] > reserved) reserved = part.reserved[at];
    }
    const part = set.parts[Math.floor(most / set.tile)];
    const at = most % set.tile;
    columns.at[column] = part.at[at];
    columns.most[column] = part.most[at];
    columns.least[column] = least;
    columns.reserved[column] = reserved;
    columns.live.forEach((bytes, one) => {
      bytes[column] = part.live[before + one][at];
    });
  }
  span(columns);
  return { ...columns, exact: false };
}

/** Adds the columns that each allocation covers: from its `first`, up to its `after`. */
function span(columns) {
  const { lives, at, width, from, to } = columns;
  const perColumn = (to - from) / width;
  const reach = (moment) => {
    let column = Math.min(Math.max(Math.floor((moment - from) / perColumn), 0), width);
    while (column > 0 && at[column - 1] >= moment) column -= 1;
    while (column < width && at[column] < moment) column += 1;
    return column;
  };
  columns.first = new Uint32Array(lives.count);
  columns.after = new Uint32Array(lives.count);
  for (let i = 0; i < lives.count; i += 1) {
    columns.first[i] = reach(lives.begin[i]);
    columns.after[i] = reach(lives.end[i]);
  }
}

/** Where an allocation is stacked at a moment, or as it begins, as bytes; `null` if it is not among the columns. */
export function heightOf(columns, index, moment) {
  const { lives, order, classes, first, after, live } = columns;
  const place = lives.index.indexOf(index);
  if (place < 0 || first[place] >= after[place]) return null;
  const wanted = Math.floor(((moment - columns.from) / (columns.to - columns.from)) * columns.width);
  const column = Math.min(Math.max(wanted, first[place]), after[place] - 1);
  let low = 0;
  for (let category = 0; category < classes[place]; category += 1) low += live[category][column];
  for (const other of order) {
    if (other === place) break;
    if (classes[other] === classes[place] && first[other] <= column && after[other] > column) low += lives.size[other];
  }
  return { low, high: low + lives.size[place] };
}
