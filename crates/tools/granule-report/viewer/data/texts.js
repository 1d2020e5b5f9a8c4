// Names and stacks, unpacked when the first one is wanted.

/** Frames of compiled code have other endings, or none. Cells of notebooks are Python, too. */
export function isPython(file) {
  return /\.(py|ipynb)$|^<ipython-input|^\/tmp\/ipykernel/.test(file);
}

export class Texts {
  constructor(store, loaded) {
    this.ready = false;
    Object.assign(this, { store, loaded });
  }

  /** Begins to unpack them. */
  want() {
    this.reading ??= this.read();
    return this.reading;
  }

  async read() {
    const reader = await this.store.reader("texts");
    const decoder = new TextDecoder();
    this.strings = Array.from({ length: reader.count() }, () => reader.text(decoder));
    const frames = reader.count();
    this.frameName = reader.steps(new Uint32Array(frames));
    this.frameFile = reader.steps(new Uint32Array(frames));
    this.frameLine = reader.column(new Float64Array(frames));
    const nodes = reader.count();
    // Outer nodes come first, whatever a damaged page says: every stack ends.
    this.nodeOutside = reader.steps(new Uint32Array(nodes)).map((outside, i) => Math.min(outside, i));
    this.nodeFrame = reader.steps(new Uint32Array(nodes));
    const sites = reader.count();
    this.siteNode = reader.steps(new Uint32Array(sites));
    this.siteName = reader.steps(new Uint32Array(sites));
    this.siteLine = reader.column(new Uint32Array(sites));
    this.siteCount = reader.column(new Float64Array(sites));
    this.siteLargest = reader.column(new Float64Array(sites));
    this.siteAtPeak = reader.column(new Float64Array(sites));
    this.labels = reader.column(new Uint32Array(reader.count()));
    this.streams = reader.column(new Float64Array(reader.count()));
    const pools = reader.count();
    const first = reader.column(new Float64Array(pools));
    const second = reader.column(new Float64Array(pools));
    this.pools = Array.from(first, (number, i) => [number, second[i]]);
    this.ready = true;
    this.loaded();
  }

  /** Which strings have a text in them, and which frames have it in their function's or file's name. */
  having(text) {
    const strings = this.strings.map((string) => string.toLowerCase().includes(text));
    const frames = Array.from(this.frameName, (name, i) => strings[name] || strings[this.frameFile[i]]);
    return { strings, frames };
  }

  /** Frames of a stack's innermost node, innermost first. */
  stack(node) {
    const frames = [];
    for (let at = node; at > 0; at = this.nodeOutside[at - 1]) {
      const frame = this.nodeFrame[at - 1];
      const file = this.strings[this.frameFile[frame]];
      frames.push({
        name: this.strings[this.frameName[frame]],
        file,
        line: this.frameLine[frame],
        python: isPython(file),
        own: false,
      });
    }
    return frames;
  }

  /** As `stack`; the frame that stands for the site is marked. */
  siteStack(site) {
    if (!this.ready) return [];
    const frames = this.stack(this.siteNode[site] ?? 0);
    const own = frames[this.siteLine[site] - 1];
    if (own) own.own = true;
    return frames;
  }

  /** The line of the program that asked. */
  place(site) {
    return this.ready ? this.strings[this.siteName[site]] ?? "" : "";
  }

  label(index) {
    return this.ready ? this.strings[this.labels[index]] ?? "" : "";
  }

  stream(index) {
    const handle = this.ready ? this.streams[index] : undefined;
    if (handle === undefined) return `stream ${index}`;
    return handle === 0 ? "default stream" : `stream 0x${handle.toString(16)}`;
  }

  pool(index) {
    const pool = this.ready ? this.pools[index] : undefined;
    if (!pool) return `pool ${index}`;
    return pool[0] === 0 && pool[1] === 0 ? "default pool" : `pool (${pool[0]}, ${pool[1]})`;
  }
}
