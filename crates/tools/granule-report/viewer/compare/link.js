// The address of a page of several runs: the place that is kept, and what the charts show.

const WHOLE = /^[0-9]+$/;
const DECIMAL = /^[0-9]+(\.[0-9]+)?$/;

/** The text of an address. What is as when the page opens is not in it. */
export function linkOf(kept, { from, to, low, high }, home) {
  const given = new URLSearchParams();
  if (kept !== null) given.set("at", kept);
  const places = { from, to };
  for (const name of ["from", "to"]) if (places[name] !== home[name]) given.set(name, Number(places[name].toFixed(3)));
  const bytes = { low, high };
  for (const name of ["low", "high"]) if (bytes[name] !== home[name]) given.set(name, Math.round(bytes[name]));
  return given.toString();
}

/** What an address says: the place, and what is shown. What it does not say, or wrongly, is as when the page opens. */
export function linked(text, home) {
  const given = new URLSearchParams(text);
  const number = (name, pattern, most) => {
    const value = given.get(name);
    return value !== null && pattern.test(value) && Number(value) <= most ? Number(value) : null;
  };
  const shown = { ...home };
  for (const name of ["from", "to"]) shown[name] = number(name, DECIMAL, home.to) ?? home[name];
  for (const name of ["low", "high"]) shown[name] = number(name, WHOLE, home.high) ?? home[name];
  // A window of nothing shows nothing.
  if (!(shown.to - shown.from >= 1)) Object.assign(shown, { from: home.from, to: home.to });
  if (!(shown.high - shown.low >= 1)) Object.assign(shown, { low: home.low, high: home.high });
  return { kept: number("at", WHOLE, home.to - 1), shown };
}
