// Elements. What comes from the file becomes text only, never markup.

/** An element with properties (`text`, `class`, attributes, `on...`) and children. */
export function element(tag, properties = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A text of which the end is kept where it has no room: that of a line of code says most. */
export function tail(kind, text) {
  return element("span", { class: `${kind} tail` }, [element("bdi", { text })]);
}

/** Whether a key is no command: with Ctrl and the like, while a dialog is open, or where something is typed or chosen. */
export function isTyped(event) {
  const field = event.target.matches?.("input:not([type=checkbox]), select, textarea");
  return event.ctrlKey || event.metaKey || event.altKey || Boolean(document.querySelector("dialog[open]")) || field;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Copies a text, and says on the button whether that went well: a browser may not allow it. */
export async function copy(text, button) {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  button.textContent = copied ? "Copied" : "Could not copy";
}

/** Names and values, side by side. */
export function fillFigures(list, figures) {
  const parts = figures.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]);
  list.replaceChildren(...parts);
}

/** Marks one of several buttons as the chosen one. */
export function choose(buttons, chosen, attribute) {
  for (const button of buttons) button.setAttribute(attribute, String(button === chosen));
}
