// The few words beside the pointer.
import { byId, element } from "./dom.js";
import { formatBytes } from "./format.js";

/** Shows text beside the pointer: the first line stands out. */
export function showTip(event, lines) {
  const tip = byId("tip");
  tip.replaceChildren(element("strong", { text: lines[0] }), ...lines.slice(1).map((text) => element("div", { text })));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 16 + width > window.innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const top = event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 12 : event.clientY + 18;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(top, 4)}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}

/** What the tip says of what the chart has at a point. */
export function chartTip(found, chart, texts, names) {
  if (found.refusal) return refusalTip(found.refusal);
  if (found.note) return [`${found.note[1]}`, chart.describeMoment(found.note[0])];
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
