// What there was at one moment.
import { LIFE_COLUMNS, newColumn } from "./store.js";

/**
 * Memory reserved at a moment, and what was in it: allocations that are live, and those that are given back but
 * wait for another stream. `null` while it is being unpacked.
 */
export function momentOf(store, at) {
  if (store.lastMoment?.at === at) return store.lastMoment;
  const parts = store.intervalsOf(at, at)?.flat();
  if (!parts) return null;
  const lives = pick(parts.map((part) => part.lives), (list, i) => list.begin[i] <= at && list.reusable[i] > at);
  const waiting = lives.end.map((end) => (end <= at ? 1 : 0));
  const spans = [];
  for (const { spans: list } of parts) {
    for (let i = 0; i < list.count; i += 1) {
      if (list.begin[i] > at || list.end[i] <= at) continue;
      spans.push({
        address: list.address[i],
        size: list.size[i],
        stream: list.stream[i],
        pool: list.pool[i],
        growable: list.growable[i] === 1,
      });
    }
  }
  spans.sort((a, b) => a.address - b.address);
  const live = lives.size.reduce((sum, size, i) => (waiting[i] ? sum : sum + size), 0);
  const reserved = spans.reduce((sum, span) => sum + span.size, 0);
  store.lastMoment = { at, lives, waiting, spans, live, reserved, ...freeIn(store, lives, spans) };
  return store.lastMoment;
}

function pick(lists, wanted) {
  const found = [];
  for (const list of lists) {
    for (let i = 0; i < list.count; i += 1) if (wanted(list, i)) found.push([list, i]);
  }
  found.sort(([list, i], [other, j]) => list.index[i] - other.index[j]);
  const lives = { count: found.length };
  for (const name of LIFE_COLUMNS) {
    lives[name] = newColumn(name, found.length);
    found.forEach(([list, i], at) => {
      lives[name][at] = list[name][i];
    });
  }
  return lives;
}

/**
 * Where an allocation can lie: a segment, or all that is mapped side by side in a growable one, since an allocation there may
 * reach from one mapping into the next.
 */
function stretches(spans) {
  const found = [];
  for (const { address, size, stream, pool, growable } of spans) {
    const last = found.at(-1);
    const goesOn =
      last?.growable && growable && last.end === address && last.stream === stream && last.pool === pool;
    if (goesOn) last.end += size;
    else found.push({ address, end: address + size, stream, pool, growable });
  }
  return found;
}

/** What is free between the blocks in the reserved memory: bytes, how many pieces, the largest; and where each block ends. */
function freeIn(store, lives, spans) {
  const order = Uint32Array.from(lives.address.keys()).sort((a, b) => lives.address[a] - lives.address[b]);
  const ends = lives.address.map((address, i) => address + lives.size[i]);
  let [pieces, largestPiece, free] = [0, 0, 0];
  let next = 0;
  for (const { address, end } of stretches(spans)) {
    let at = address;
    const piece = (to) => {
      if (to <= at) return;
      pieces += 1;
      free += to - at;
      largestPiece = Math.max(largestPiece, to - at);
    };
    while (next < order.length && lives.address[order[next]] < end) {
      const one = order[next];
      piece(Math.min(lives.address[one], end));
      next += 1;
      const after = next < order.length ? Math.min(lives.address[order[next]], end) : end;
      ends[one] = store.blockEnd(lives.address[one], lives.size[one], after);
      at = Math.max(at, ends[one]);
    }
    piece(end);
  }
  return { pieces, largestPiece, free, ends };
}
