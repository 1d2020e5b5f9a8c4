// The scale of bytes.

/** Where the scale of a chart ends that shows `most` bytes. Capacities near to that are on it, too. */
export function topOf(most, capacities) {
  // One far above everything would make the rest flat.
  const near = capacities.filter((capacity) => capacity && capacity < 1.7 * most);
  return 1.06 * Math.max(most, ...near);
}
