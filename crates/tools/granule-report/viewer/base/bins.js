// A run in bins: of some moments taken together the one at which most was live, and what was live then by category.

export function readBins(reader, categories) {
  const count = reader.count();
  const at = reader.steps(new Uint32Array(count));
  const most = reader.steps(new Float64Array(count));
  const least = reader.column(new Float64Array(count));
  for (let i = 0; i < count; i += 1) least[i] = most[i] - least[i];
  const reserved = reader.steps(new Float64Array(count));
  const live = [];
  for (let i = 0; i < categories; i += 1) live.push(reader.steps(new Float64Array(count)));
  return { count, at, most, least, reserved, live };
}
