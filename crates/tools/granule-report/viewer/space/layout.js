// Where addresses are in the map: rows of the same number of bytes, stretches of addresses one after the other.
//
// Areas are what was ever reserved side by side, so that an address has the same place at every moment.

/** Rows for the areas that are `rows` in number at most; `width` is in pixels. */
export function layOut(areas, rows, width) {
  const total = areas.reduce((sum, area) => sum + area.size, 0);
  if (total === 0) return { pieces: [], rows: 0, perRow: 1 };
  let perRow = total / rows;
  for (;;) {
    const layout = place(areas, roundUp(perRow), width);
    if (layout.rows <= rows) return layout;
    perRow *= Math.max(1.01, 1 + (layout.rows - rows) / rows / 2);
  }
}

/** Rows begin at round addresses. */
export function roundUp(bytes) {
  const unit = bytes > 2 ** 26 ? 2 ** 21 : 512;
  return Math.ceil(bytes / unit) * unit;
}

/** Rows of `perRow` bytes. */
export function place(areas, perRow, width) {
  const pieces = [];
  const gap = (3 * perRow) / width;
  let [row, x] = [0, 0];
  for (const area of areas) {
    if (x > 0 && area.size > perRow - x) [row, x] = [row + 1, 0];
    let { address, size } = area;
    while (size > perRow) {
      pieces.push({ address, size: perRow, row, x: 0 });
      address += perRow;
      size -= perRow;
      row += 1;
    }
    pieces.push({ address, size, row, x });
    // What is hardly to be seen gets no gap, or gaps would be all there is.
    x += size + (size > 4 * gap ? gap : 0);
    if (x >= perRow) [row, x] = [row + 1, 0];
  }
  return { pieces, rows: x > 0 ? row + 1 : row, perRow };
}

/** The first piece that does not end before the address. */
export function pieceAt(pieces, address) {
  let [low, high] = [0, pieces.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (pieces[middle].address + pieces[middle].size <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Stretches that follow each other without a gap, as one. */
export function joined(spans) {
  const areas = [];
  for (const { address, size } of spans) {
    const last = areas[areas.length - 1];
    if (last && last.address + last.size === address) last.size += size;
    else areas.push({ address, size });
  }
  return areas;
}
