// The address of a page of several runs: the place that is kept, and what the charts show.
import { numberPart, readParts, writeParts } from "../share/address.js";

function partsOf({ to, high }) {
  const window = [numberPart("from", "from", 0, to, 3), numberPart("to", "to", 0, to, 3)];
  return [numberPart("at", "kept", 0, to - 1), ...window, numberPart("low", "low", 0, high), numberPart("high", "high", 0, high)];
}

export function linkOf(kept, shown, home) {
  return writeParts(partsOf(home), { kept, ...shown }, { kept: null, ...home });
}

export function linked(text, home) {
  const { kept, ...shown } = readParts(partsOf(home), text, { kept: null, ...home });
  return { kept, shown };
}
