// What is said beside the pointer.
import { formatBytes } from "../base/format.js";

/** What the tip says of what the chart has at a point. */
export function chartTip(found, chart, texts, names) {
  if (found.refusal) return refusalTip(found.refusal);
  if (found.note) return [`${found.note[1]}`, chart.store.describe(found.note[0])];
  if (found.life) return lifeTip(found.life, texts);
  if (found.category === undefined) return null;
  const all = `${names[found.category]}: ${formatBytes(found.bytes)} in all`;
  return ["Small or short ones, drawn together", all, "Zoom in to see each of them."];
}

export function lifeTip(life, texts) {
  const place = texts.place(life.site);
  return [formatBytes(life.size), ...[place, texts.label(life.label)].filter(Boolean)];
}

function refusalTip(refusal) {
  const free = refusal.deviceFree === null ? "" : `; the device had ${formatBytes(refusal.deviceFree)} free`;
  return ["Out of memory", `${formatBytes(refusal.size)} refused${free}`, refusal.why, refusal.place].filter(Boolean);
}
