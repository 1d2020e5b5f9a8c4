// What happened around a moment.
import { lifeAt } from "./state.js";

/** PyTorch's names, in the order in which they come within one entry. */
const ACTIONS =
  "free_requested free_completed segment_free segment_unmap segment_alloc segment_map alloc oom annotate empty_cache iteration".split(" ");

/** The events of the entries around a moment, in order; `null` while they are being unpacked. */
export function eventsAround(store, moment, reach) {
  const [from, to] = [Math.max(moment - reach, 1), moment + reach];
  // What ends with an entry is kept where the one before is.
  const parts = store.intervalsOf(from - 1, to)?.flat();
  if (!parts) return null;
  const events = [];
  const near = (at) => at >= from && at <= to;
  const add = (at, action, rest) => near(at) && events.push({ at, action, ...rest });
  const known = new Map();
  // A span that lost parts later is several here; what was taken at once was taken at once.
  const addSpan = (at, action, stream, size) => {
    const key = `${at} ${action} ${stream}`;
    if (known.has(key)) known.get(key).size += size;
    else if (add(at, action, { stream, size })) known.set(key, events.at(-1));
  };
  for (const { lives, spans } of parts) {
    for (let i = 0; i < lives.count; i += 1) {
      const [begin, end, reusable] = [lives.begin[i], lives.end[i], lives.reusable[i]];
      if (!near(begin) && !near(end) && !near(reusable)) continue;
      const life = lifeAt(lives, i);
      const { size, stream } = life;
      add(begin, "alloc", { size, stream, life });
      add(end, "free_requested", { size, stream, life });
      if (reusable > end) add(reusable, "free_completed", { size, stream, life });
    }
    for (let i = 0; i < spans.count; i += 1) {
      const [taken, given] = spans.growable[i] ? ["segment_map", "segment_unmap"] : ["segment_alloc", "segment_free"];
      addSpan(spans.begin[i], taken, spans.stream[i], spans.size[i]);
      addSpan(spans.end[i], given, spans.stream[i], spans.size[i]);
    }
  }
  const { refusals, notes, flushes, iterations } = store.about;
  for (const { at, size, stream, place } of refusals) add(at, "oom", { size, stream, text: place });
  for (const [at, text] of notes) add(at, "annotate", { text });
  for (const at of flushes) add(at, "empty_cache", {});
  for (const [at, number] of iterations) add(at, "iteration", { text: `iteration ${number}` });
  return events.sort((a, b) => a.at - b.at || ACTIONS.indexOf(a.action) - ACTIONS.indexOf(b.action));
}
