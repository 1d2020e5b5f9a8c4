// The flame graph: what is live at the chosen moment, by call stack.
import { emptied } from "../base/canvas.js";
import { inkOn, mix, palette, parseColour, css, shadeOf } from "../base/colours.js";
import { byId } from "../base/dom.js";
import { formatBytes, formatCount, formatCounted, formatShare } from "../base/format.js";
import { momentOf } from "../data/moment.js";
import { state } from "../data/state.js";
import { isPython } from "../data/texts.js";
import { fitted } from "../time/chart.js";
import { FrameTree, NO_STACK } from "./tree.js";

const FRAME_ROW = 18;
/** Frames narrower than this many pixels are left out. */
const NARROWEST = 0.5;
/** Files have one of so many colours. */
const FILE_COLOURS = 12;

export class Flame {
  constructor(canvas, store, texts) {
    Object.assign(this, { canvas, store, texts });
    this.scroll = 0;
    this.boxes = [];
  }

  /** Draws the moment. Keeps what it shows while the moment or the stacks are being unpacked. */
  draw(look) {
    const { canvas, texts } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const now = momentOf(this.store, state.moment);
    if (!texts.ready) texts.want();
    if (!texts.ready || !now || width < 50 || height < FRAME_ROW) return;
    this.take(now);
    this.arrange(width, height);
    const context = emptied(canvas);
    context.font = "11px system-ui, sans-serif";
    const colours = this.colours(look);
    for (const box of this.boxes) this.paint(context, box, colours, look);
    byId("flame-readout").textContent = this.readout();
  }

  /** The tree, its sums at the moment, and which frames are marked. */
  take(now) {
    if (this.tree?.native !== state.native) {
      this.tree = Object.assign(new FrameTree(this.texts, state.native), { native: state.native });
      this.now = null;
    }
    if (this.now !== now) Object.assign(this, this.tree.sums(now));
    this.now = now;
    this.root = state.frame < this.tree.count ? state.frame : 0;
    const text = state.sites ? state.query.trim().toLowerCase() : "";
    if (this.marked?.text !== text || this.marked.tree !== this.tree) {
      this.marked = { text, tree: this.tree, nodes: text ? this.found(text) : null };
    }
  }

  found(text) {
    const { frames } = this.texts.having(text);
    return Uint8Array.from(this.tree.frame, (frame) => (frame >= 0 && frames[frame] ? 1 : 0));
  }

  /** Lays out the frames that are to be seen: those around the chosen one in full width, then it and what is inside of it. */
  arrange(width, height) {
    const { tree, bytes, root } = this;
    const boxes = tree.pathTo(root).map((node, depth) => ({ node, depth, x: 0, width, around: node !== root }));
    const scale = width / Math.max(bytes[root], 1);
    // Grows while it is gone through.
    const inside = bytes[root] > 0 ? [boxes.at(-1)] : [];
    for (const box of inside) {
      let { x } = box;
      const children = [...tree.childrenOf(box.node)].filter((node) => bytes[node] * scale >= NARROWEST);
      for (const node of children.sort((a, b) => bytes[b] - bytes[a])) {
        inside.push({ node, depth: box.depth + 1, x, width: bytes[node] * scale, around: false });
        x += bytes[node] * scale;
      }
    }
    this.boxes = boxes.concat(inside.slice(1));
    const rows = this.boxes.reduce((most, box) => Math.max(most, box.depth + 1), 0);
    this.scroll = Math.min(Math.max(this.scroll, 0), Math.max(rows * FRAME_ROW - height, 0));
  }

  paint(context, { node, depth, x, width, around }, colours, look) {
    const y = depth * FRAME_ROW - this.scroll;
    const back = around || (this.marked.nodes && !this.marked.nodes[node]);
    const plain = this.marked.nodes?.[node] ? look.accent : colours.of(node);
    const colour = back ? mix(plain, look.paper, 0.6) : plain;
    context.fillStyle = css(colour);
    context.fillRect(x, y, Math.max(width - 1, NARROWEST), FRAME_ROW - 1);
    if (width < 40) return;
    context.fillStyle = inkOn(colour).ink;
    context.fillText(fitted(context, this.nameOf(node), width - 10), x + 5, y + 12);
  }

  /** Colours of frames: by file, native ones grey. */
  colours(look) {
    const { texts, tree } = this;
    const names = Array.from({ length: FILE_COLOURS + 1 });
    const shades = palette({ names, ordered: false, rest: true }, look.dark);
    const grey = parseColour(look.theme.free);
    const of = (node) => {
      const frame = tree.frame[node];
      if (frame < 0) return grey;
      const file = texts.frameFile[frame];
      const native = !isPython(texts.strings[file]);
      return shades[native ? FILE_COLOURS : (Math.imul(file + 1, 0x9e3779b1) >>> 8) % FILE_COLOURS][shadeOf(frame)];
    };
    return { of };
  }

  nameOf(node) {
    const { texts, tree } = this;
    if (node === 0) return `everything live: ${formatBytes(this.bytes[0])}`;
    if (node === NO_STACK) return "no stack recorded";
    return texts.strings[texts.frameName[tree.frame[node]]];
  }

  /** Below the pictures' switch: what is shown, and how much of it the marked frames are. */
  readout() {
    const { bytes, root } = this;
    if (bytes[root] === 0) return root > 0 ? "nothing of this frame is live at this moment" : "nothing is live at this moment";
    const parts = [`live at entry ${formatCount(state.moment)}: ${formatBytes(bytes[0])}`];
    if (root > 0) parts.push(`in this frame ${formatBytes(bytes[root])}, ${formatShare(bytes[root], bytes[0])}`);
    if (this.marked.nodes) {
      const found = this.markedBytes();
      parts.push(`found ${formatBytes(found)}, ${formatShare(found, bytes[0])}`);
    }
    return parts.join(" · ");
  }

  /** Bytes of the marked frames, each once however many of a stack are marked. */
  markedBytes() {
    const { tree, bytes, marked } = this;
    const covered = new Uint8Array(tree.count);
    let sum = 0;
    for (let node = 1; node < tree.count; node += 1) {
      const around = covered[tree.parent[node]];
      covered[node] = around || marked.nodes[node];
      if (marked.nodes[node] && !around) sum += bytes[node];
    }
    return sum;
  }

  /** The frame at a point. */
  at(x, y) {
    const depth = Math.floor((y + this.scroll) / FRAME_ROW);
    return this.boxes.find((box) => box.depth === depth && x >= box.x && x < box.x + box.width) ?? null;
  }

  tip({ node }) {
    const { texts, tree, bytes, counts, root } = this;
    const frame = tree.frame[node];
    const line = texts.frameLine[frame];
    const file = frame < 0 ? [] : [`${texts.strings[texts.frameFile[frame]]}${line > 0 ? `:${line}` : ""}`];
    const inRoot = root > 0 && tree.pathTo(node).includes(root);
    const shares = [`${formatShare(bytes[node], bytes[0])} of all`];
    if (inRoot && node !== root) shares.push(`${formatShare(bytes[node], bytes[root])} of ${this.nameOf(root)}`);
    const figures = `${formatBytes(bytes[node])} in ${formatCounted(counts[node], "allocation")}`;
    return [node === 0 ? "Everything live" : this.nameOf(node), ...file, figures, shares.join(", ")];
  }

  /** What is drawn, for tests and tools. */
  describe() {
    return this.boxes.map((box) => ({
      ...box,
      name: this.nameOf(box.node),
      bytes: this.bytes[box.node],
      marked: this.marked.nodes?.[box.node] === 1,
    }));
  }
}
