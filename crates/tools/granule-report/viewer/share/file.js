// Files for the reader to keep. They are made here, and nothing is sent anywhere.

/** Gives the reader a file. */
export function saveFile(name, content) {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+/, "");
  link.click();
  // The browser reads it after this.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** A table as text, its head first. */
export function csvFile(rows) {
  const text = rows.map((row) => `${row.map(cellText).join(",")}\r\n`).join("");
  return new Blob([text], { type: "text/csv" });
}

/**
 * A text from a recording must not become a formula of the spreadsheet that opens it: those begin with one of these. Some
 * spreadsheets begin a cell after a semicolon, too, which stands between the frames of a stack.
 */
const FORMULA = /(^|;)(?=[=+\-@\t\r\n])/g;

function cellText(value) {
  if (typeof value === "number") return String(value);
  const text = value.replace(FORMULA, "$1'");
  return /[",;\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
