// The few words beside the pointer.
import { byId, element } from "./dom.js";

/** Shows text beside the pointer, where there is any and nothing is dragged: the first line stands out. */
export function showTip(event, lines) {
  const tip = byId("tip");
  tip.hidden = !lines || event.buttons !== 0;
  if (tip.hidden) return;
  tip.replaceChildren(element("strong", { text: lines[0] }), ...lines.slice(1).map((text) => element("div", { text })));
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 16 + width > window.innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const top = event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 12 : event.clientY + 18;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(top, 4)}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}
