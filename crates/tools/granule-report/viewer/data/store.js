// The page's sections: unpacked when they are first wanted, and forgotten when too many are.
import { readBins } from "../base/bins.js";
import { Reader, unpack, whenThere } from "../base/bytes.js";
import { formatCount, formatTime } from "../base/format.js";

/** The end of what does not end within the run. */
export const NEVER = 0xffffffff;

/** Columns of allocations. */
export const LIFE_COLUMNS = ["index", "begin", "end", "reusable", "size", "address", "stream", "pool", "site", "label"];

/** Room for a column: bytes and addresses go beyond 32 bits. */
export function newColumn(name, count) {
  return name === "size" || name === "address" ? new Float64Array(count) : new Uint32Array(count);
}

/** Allocations kept unpacked, in all sections together. */
const MOST_LIVES = 1_500_000;

/** When each begins and ends. */
function readRanges(reader, count) {
  const begin = reader.steps(new Uint32Array(count));
  const end = begin.map((from) => {
    const after = reader.number();
    return after === 0 ? NEVER : from + after - 1;
  });
  return { begin, end };
}

/** Allocations as columns, by index in the run. */
export function readLives(reader, addressScale) {
  const count = reader.count();
  const index = reader.steps(new Uint32Array(count));
  const { begin, end } = readRanges(reader, count);
  const reusable = end.map((from) => {
    const wait = reader.number();
    return wait === 0 ? from : wait === 1 ? NEVER : from + wait - 1;
  });
  const size = reader.column(new Float64Array(count));
  const address = reader.steps(new Float64Array(count)).map((code) => code * addressScale);
  const [stream, pool, site, label] = [0, 1, 2, 3].map(() => reader.column(new Uint32Array(count)));
  return { count, index, begin, end, reusable, size, address, stream, pool, site, label };
}

function readSpans(reader, addressScale) {
  const count = reader.count();
  const { begin, end } = readRanges(reader, count);
  const size = reader.column(new Float64Array(count));
  const address = reader.steps(new Float64Array(count)).map((code) => code * addressScale);
  const stream = reader.column(new Uint32Array(count));
  const pool = reader.column(new Uint32Array(count));
  const growable = reader.column(new Uint8Array(count));
  return { count, begin, end, size, address, stream, pool, growable };
}

/** Bins of a level, with the allocations that can be made out at it. */
function readTile(reader, classes, addressScale) {
  return { ...readBins(reader, classes), lives: readLives(reader, addressScale) };
}

function readClasses(reader, addressScale) {
  const [site, stream, pool, label] = [0, 1, 2, 3].map(() => reader.column(new Uint8Array(reader.count())));
  const clockStep = reader.number();
  const clock = reader.steps(new Float64Array(reader.count()));
  const areaCount = reader.count();
  const address = reader.steps(new Float64Array(areaCount)).map((code) => code * addressScale);
  const areas = { address, size: reader.column(new Float64Array(areaCount)) };
  return { site, stream, pool, label, clockStep, clock, areas, room: readRoom(reader) };
}

/** What a request of each size takes beyond its bytes. */
function readRoom(reader) {
  const count = reader.count();
  const size = reader.steps(new Float64Array(count));
  const rounding = reader.column(new Float64Array(count));
  const kept = reader.column(new Float64Array(count));
  return new Map(Array.from(size, (one, i) => [one, { rounding: rounding[i], kept: kept[i] }]));
}

/** Everything the page has. */
export class Store {
  /** `loaded` is called when something that was wanted is there. */
  constructor(loaded) {
    this.loaded = loaded;
    this.sections = new Map();
    this.lives = 0;
    this.use = 0;
    this.device = 0;
  }

  async open() {
    this.about = await this.aboutDevice();
    // Each has all sections; the first device's are there without reading on.
    this.device = linkedDevice(this.about.devices.length);
    if (this.device > 0) this.about = await this.aboutDevice();
    const { about } = this;
    this.addressScale = 2 ** about.addressShift;
    this.addressBase = BigInt(about.addressBase);
    this.intervals = new Set(about.intervals.map(([height, index]) => intervalId(height, index)));
    this.top = about.intervals.reduce((top, [height]) => Math.max(top, height), 0);
    this.classCount = about.ways.reduce((sum, way) => sum + way.names.length, 0);
    this.classes = readClasses(await this.reader("classes"), this.addressScale);
  }

  async aboutDevice() {
    return JSON.parse(new TextDecoder().decode((await this.reader("about")).bytes));
  }

  /** A section of the device. */
  async reader(id) {
    return new Reader(await unpack(await whenThere(this.device > 0 ? `device-${this.device}-${id}` : id)));
  }

  /** The address as people write it. */
  formatAddress(offset) {
    return `0x${(this.addressBase + BigInt(Math.round(offset))).toString(16)}`;
  }

  /** Where the block of a request ends, if the next one, or the end of the memory, is at `after`. */
  blockEnd(address, size, after) {
    const { rounding = 0, kept = 0 } = this.classes.room.get(size) ?? {};
    const end = Math.min(address + size + rounding, after);
    return after - end <= kept ? after : end;
  }

  /** Microseconds from the first entry to a moment; `null` where there is no clock. */
  timeOf(moment) {
    const { clock, clockStep } = this.classes;
    if (clock.length < 2) return null;
    const place = Math.max(0, moment - 1) / clockStep;
    const before = Math.min(Math.floor(place), clock.length - 2);
    const part = Math.min(place - before, 1);
    return clock[before] - clock[0] + part * (clock[before + 1] - clock[before]);
  }

  /** A moment as text, with the time where there is a clock. */
  describe(moment) {
    const time = this.timeOf(moment);
    const entry = `entry ${formatCount(moment)}`;
    return time === null ? entry : `${entry} · ${formatTime(time)}`;
  }

  /** A tile of a level, or `null` while it is being unpacked. */
  tile(shift, index) {
    return this.section(`level-${shift}-${index}`, (reader) => {
      const tile = readTile(reader, this.classCount, this.addressScale);
      return { ...tile, weight: tile.lives.count };
    });
  }

  /** An interval's content, or `null` while it is being unpacked. Empty ones are not in the page. */
  interval(height, index) {
    const id = intervalId(height, index);
    if (!this.intervals.has(id)) return EMPTY_INTERVAL;
    return this.section(id, (reader) => {
      const lives = readLives(reader, this.addressScale);
      return { lives, spans: readSpans(reader, this.addressScale), weight: lives.count };
    });
  }

  /** What there was in the moments from one to another, and more, by height of intervals; `null` while it is being unpacked. */
  intervalsOf(first, last) {
    const levels = [];
    for (let height = 0; height <= this.top; height += 1) {
      const width = 2 ** (this.about.leaf + height);
      levels.push([]);
      for (let index = Math.floor(first / width); index <= Math.floor(last / width); index += 1) levels[height].push(this.interval(height, index));
    }
    return levels.flat().includes(null) ? null : levels;
  }

  /** Waits for a section that is not to be kept. */
  async once(height, index) {
    const kept = this.sections.get(intervalId(height, index));
    if (kept?.content) return kept.content;
    return { lives: readLives(await this.reader(intervalId(height, index)), this.addressScale) };
  }

  section(id, read) {
    const known = this.sections.get(id);
    this.use += 1;
    if (known) {
      known.used = this.use;
      return known.content;
    }
    const section = { content: null, used: this.use };
    this.sections.set(id, section);
    this.read(id, section, read);
    return null;
  }

  async read(id, section, read) {
    section.content = read(await this.reader(id));
    this.lives += section.content.weight;
    this.forget();
    this.loaded();
  }

  /** Forgets what was not used for longest. */
  forget() {
    if (this.lives <= MOST_LIVES) return;
    const old = [...this.sections].filter(([, section]) => section.content && section.used < this.use - 1000);
    old.sort(([, a], [, b]) => a.used - b.used);
    for (const [id, section] of old) {
      if (this.lives <= MOST_LIVES / 2) break;
      this.lives -= section.content.weight;
      this.sections.delete(id);
    }
  }
}

const EMPTY_LIVES = readLives(new Reader(new Uint8Array(1)), 1);
const EMPTY_INTERVAL = { lives: EMPTY_LIVES, spans: readSpans(new Reader(new Uint8Array(1)), 1), weight: 0 };

/** The place of the device that the page's address names, among those of the file. */
export function linkedDevice(count) {
  const given = count > 1 ? Number(new URLSearchParams(window.location.hash.slice(1)).get("device")) : 0;
  return Number.isInteger(given) && given > 0 && given < count ? given : 0;
}

function intervalId(height, index) {
  return `interval-${height}-${index}`;
}
