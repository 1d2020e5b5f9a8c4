// Colours of categories, in both themes. Calm ones: lightness and chroma are even, only the hue tells them apart.

const HUES = [250, 155, 60, 305, 20, 200, 100, 340, 275, 180, 125, 40];

/** OKLCH as 0xAABBGGRR, which is how pixels lie in memory. */
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const [red, green, blue] = linear.map((part) => {
    const value = Math.min(Math.max(part, 0), 1);
    return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
  });
  return pixel(red, green, blue);
}

export function pixel(red, green, blue) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** A pixel's colour for style sheets and canvases. */
export function css(colour) {
  return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
}

/** Part `by` of the way from one colour to the other. */
export function mix(one, other, by) {
  const part = (shift) => {
    const from = (one >> shift) & 255;
    return Math.round(from + (((other >> shift) & 255) - from) * by);
  };
  return pixel(part(0), part(8), part(16));
}

/** How much light a colour gives, from 0 to 1, as WCAG has it. */
function luminance(colour) {
  const linear = (shift) => {
    const part = ((colour >> shift) & 255) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(0) + 0.7152 * linear(8) + 0.0722 * linear(16);
}

/** Black or white, whichever is read better on a colour, and the contrast: at least 4.5, since no colour is far from both. */
export function inkOn(colour) {
  const light = luminance(colour) + 0.05;
  return light * light > 1.05 * 0.05 ? { ink: "#000", contrast: light / 0.05 } : { ink: "#fff", contrast: 1.05 / light };
}

/** Colours of one way of colouring: for each category some shades, so that neighbours of one category differ. */
export function palette(way, dark) {
  const count = way.names.length;
  return way.names.map((_, index) => {
    if (way.rest && index === count - 1) return shades(dark ? 0.5 : 0.72, 0.012, 250, dark);
    if (way.ordered) {
      const part = count > 1 ? index / (count - 1) : 0;
      const lightness = dark ? 0.42 + 0.4 * part : 0.84 - 0.38 * part;
      return shades(lightness, 0.1, 195 + 140 * part, dark);
    }
    const lightness = (dark ? 0.62 : 0.7) + (index % 2 ? 0.05 : -0.02);
    return shades(lightness, 0.1, HUES[index % HUES.length], dark);
  });
}

export const SHADES = 4;

function shades(lightness, chroma, hue, dark) {
  const step = dark ? 0.022 : 0.018;
  return Array.from({ length: SHADES }, (_, shade) => oklch(lightness + (shade - 1.5) * step, chroma, hue));
}

/** Which shade an allocation has: any, but always the same. */
export function shadeOf(index) {
  return (Math.imul(index, 0x9e3779b1) >>> 13) % SHADES;
}

/** Colours of everything that is no category, as the style sheet has them. */
export function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "soft", "line", "grid", "free", "reserved", "capacity", "alarm", "mark", "accent"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A `#rrggbb` colour as a pixel. */
export function parseColour(text) {
  const number = parseInt(text.slice(1), 16);
  return pixel((number >> 16) & 255, (number >> 8) & 255, number & 255);
}
