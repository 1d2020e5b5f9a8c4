// How numbers are written.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes in the unit that fits, with three digits or so. */
export function formatBytes(bytes) {
  let unit = 0;
  let value = Math.abs(bytes);
  // What is written without digits must not read 1024.
  while (Math.round(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** Bytes to the last one, with the rounded figure where that is shorter. */
export function formatExact(bytes) {
  return bytes < 1024 ? formatBytes(bytes) : `${formatBytes(bytes)} (${formatCount(bytes)} B)`;
}

export function formatCount(number) {
  return Math.round(number).toLocaleString("en-US");
}

/** So many of something. */
export function formatCounted(number, one) {
  return `${formatCount(number)} ${one}${number === 1 ? "" : "s"}`;
}

/** A part of a whole. */
export function formatShare(part, whole) {
  if (!(whole > 0)) return "–";
  const percent = (100 * part) / whole;
  return `${percent >= 10 || percent === 0 ? percent.toFixed(0) : percent.toFixed(1)} %`;
}

/** A duration in nanoseconds, with three digits. */
export function formatShort(ns) {
  const [value, unit] = ns < 1e3 ? [ns, "ns"] : ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return `${value >= 100 ? value.toFixed(0) : value.toPrecision(3)} ${unit}`;
}

/** Microseconds since the run began. */
export function formatTime(us) {
  if (us < 1000) return `${us.toFixed(0)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(2)} ms`;
  if (us < 6e7) return `${(us / 1e6).toFixed(3)} s`;
  return `${Math.floor(us / 6e7)} min ${((us % 6e7) / 1e6).toFixed(1)} s`;
}

/** What a person typed for a size: `512`, `1.5MiB`, `2G`; NaN where it is none. */
export function parseBytes(text) {
  const found = /^([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(?:i?b)?$/i.exec(text.trim());
  if (!found) return NaN;
  return Math.round(Number(found[1]) * 1024 ** " kmgtp".indexOf(found[2].toLowerCase() || " "));
}

/** Steps of an axis: round numbers of entries, or of bytes in powers of two. */
export function roundStep(range, steps, binary) {
  const rough = Math.max(range / steps, 1);
  if (binary) return 2 ** Math.ceil(Math.log2(rough));
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((by) => by * power).find((step) => step >= rough);
}
