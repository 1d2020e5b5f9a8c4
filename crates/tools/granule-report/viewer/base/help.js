// The dialog that says how a page is read and driven.
import { byId, element } from "./dom.js";

/** Fills it: what each key does, then paragraphs. The button opens it. */
export function fillHelp(keys, texts) {
  const list = element("dl", {}, keys.flatMap(([key, text]) => [
    element("dt", {}, key.split(" ").map((one) => (one === "+" && key !== "+ −" ? element("span", { text: " + " }) : element("kbd", { text: one })))),
    element("dd", { text }),
  ]));
  const close = element("button", { text: "Close", "data-testid": "help-close", onclick: () => byId("help").close() });
  byId("help").append(element("h2", { text: "How to read and drive this" }), list, ...texts.map((text) => element("p", { text })), close);
  byId("help-open").addEventListener("click", openHelp);
}

export function openHelp() {
  byId("help").showModal();
}
