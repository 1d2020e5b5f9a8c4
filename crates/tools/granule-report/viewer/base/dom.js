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
