// What is shown, as one picture with its heading and its key.
import { saveFile } from "./file.js";

const MARGIN = 14;
const TEXT_ROW = 18;

/** Browsers have no canvas with a longer side. */
const LONGEST_SIDE = 16384;

/** Gives the reader the picture as a file; what it is of is as in `pictureOf`. */
export function savePng(name, content) {
  pictureOf(content).toBlob((blob) => {
    if (blob) saveFile(name, blob);
    else window.alert("The browser could not make a picture of this size.");
  }, "image/png");
}

/**
 * A canvas with the canvases of `parts` below each other, each under its heading. `keys` are pairs of a colour and what it stands for.
 */
function pictureOf({ title, subtitle, keys, parts, theme }) {
  const width = Math.max(...parts.map(({ canvas }) => canvas.clientWidth)) + 2 * MARGIN;
  const picture = document.createElement("canvas");
  const context = picture.getContext("2d");
  const rows = keyRows(context, keys, width - 2 * MARGIN);
  const drawn = parts.reduce((sum, { canvas }) => sum + canvas.clientHeight + TEXT_ROW + 8, 0);
  const height = 2 * MARGIN + (2 + rows.length) * TEXT_ROW + drawn;
  const ratio = Math.min(window.devicePixelRatio || 1, LONGEST_SIDE / height, LONGEST_SIDE / width);
  [picture.width, picture.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  context.scale(ratio, ratio);
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, width, height);
  let y = MARGIN + 12;
  const write = (text, x, font, colour) => {
    context.font = font;
    context.fillStyle = colour;
    context.fillText(text, x, y, width - MARGIN - x);
  };
  write(title, MARGIN, HEADING, theme.ink);
  y += TEXT_ROW;
  write(subtitle, MARGIN, PLAIN, theme.soft);
  for (const row of rows) {
    y += TEXT_ROW;
    for (const { colour, name, x } of row) {
      context.fillStyle = colour;
      context.fillRect(MARGIN + x, y - 9, 10, 10);
      write(name, MARGIN + x + 15, PLAIN, theme.ink);
    }
  }
  for (const { heading, canvas } of parts) {
    y += TEXT_ROW;
    write(heading, MARGIN, HEADING, theme.ink);
    context.drawImage(canvas, MARGIN, y + 8, canvas.clientWidth, canvas.clientHeight);
    y += canvas.clientHeight + 8;
  }
  return picture;
}

const PLAIN = "12px system-ui, sans-serif";
const HEADING = "600 12px system-ui, sans-serif";

/** The key in rows that are no wider than that. */
function keyRows(context, keys, width) {
  context.font = PLAIN;
  const rows = [];
  let x = Infinity;
  for (const [colour, name] of keys) {
    const wide = context.measureText(name).width + 32;
    if (x + wide > width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push({ colour, name, x });
    x += wide;
  }
  return rows;
}
