// Call stacks as a tree of frames, the outermost first.
import { isPython } from "../data/texts.js";

/** What has no stack. */
export const NO_STACK = 1;

/**
 * All stacks of the page. Node 0 is the whole, then comes `NO_STACK`; the others are frames, each after the one outside of it.
 * Numbers are the same at every moment.
 */
export class FrameTree {
  /** `native` keeps native frames in stacks that have Python's, too. */
  constructor(texts, native) {
    this.parent = [0, 0];
    this.frame = [-1, -1];
    const { full, folded, hasPython } = this.number(texts);
    const of = (node) => (native || !hasPython[node] ? full[node] : folded[node]);
    this.siteNode = Array.from(texts.siteNode, (node) => (node === 0 ? NO_STACK : of(node)));
    this.count = this.parent.length;
    this.listChildren();
  }

  /**
   * Numbers the page's nodes, which are counted from 1: with all frames, and with Python's only; and says which have any of
   * Python's. One node can be in stacks of both kinds, so each stack chooses its own.
   */
  number({ nodeOutside, nodeFrame, frameFile, strings }) {
    const python = Array.from(frameFile, (file) => isPython(strings[file]));
    const full = new Uint32Array(nodeFrame.length + 1);
    const folded = new Uint32Array(nodeFrame.length + 1);
    const hasPython = new Uint8Array(nodeFrame.length + 1);
    const known = new Map();
    const child = (outside, frame) => {
      const id = outside * frameFile.length + frame;
      if (!known.has(id)) {
        known.set(id, this.parent.length);
        this.parent.push(outside);
        this.frame.push(frame);
      }
      return known.get(id);
    };
    nodeFrame.forEach((frame, i) => {
      const outside = nodeOutside[i];
      hasPython[i + 1] = python[frame] || hasPython[outside] ? 1 : 0;
      full[i + 1] = child(full[outside], frame);
      folded[i + 1] = python[frame] ? child(folded[outside], frame) : folded[outside];
    });
    return { full, folded, hasPython };
  }

  /** Children of a node are in `child`, from its `first` up to that of the next one. */
  listChildren() {
    const { parent, count } = this;
    this.first = new Uint32Array(count + 1);
    for (let node = 1; node < count; node += 1) this.first[parent[node] + 1] += 1;
    for (let node = 1; node <= count; node += 1) this.first[node] += this.first[node - 1];
    this.child = new Uint32Array(Math.max(count - 1, 0));
    const next = this.first.slice();
    for (let node = 1; node < count; node += 1) this.child[next[parent[node]]++] = node;
  }

  childrenOf(node) {
    return this.child.subarray(this.first[node], this.first[node + 1]);
  }

  /** From the whole to the node. */
  pathTo(node) {
    const path = [node];
    while (path[0] > 0) path.unshift(this.parent[path[0]]);
    return path;
  }

  /** Bytes and number of what is live at a moment, in each node with all that is inside of it. */
  sums({ lives, waiting }) {
    const { parent, count, siteNode } = this;
    const bytes = new Float64Array(count);
    const counts = new Uint32Array(count);
    for (let i = 0; i < lives.count; i += 1) {
      if (waiting[i]) continue;
      const node = siteNode[lives.site[i]] ?? NO_STACK;
      bytes[node] += lives.size[i];
      counts[node] += 1;
    }
    for (let node = count - 1; node > 0; node -= 1) {
      bytes[parent[node]] += bytes[node];
      counts[parent[node]] += counts[node];
    }
    return { bytes, counts };
  }
}
