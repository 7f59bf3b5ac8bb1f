/* Colours of cells as numbers for a pixel buffer. Pure. */

/** Share of the page's colour in a cell that is faded because a filter leaves it out. */
const FADE_SHARE = 0.86;

function channelsOf(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** Return `colour` mixed with a share of another one, as `#rrggbb`. */
export function mix(colour, other, share) {
  const others = channelsOf(other);
  return `#${channelsOf(colour).map((channel, at) => Math.round(channel + (others[at] - channel) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** Return a colour faded into the page. */
export function fade(colour, page) {
  return mix(colour, page, FADE_SHARE);
}

/** Return a colour as a pixel of ImageData, on a machine with little-endian numbers as all that run browsers. */
export function pixelOf(colour) {
  const [red, green, blue] = channelsOf(colour);
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Return the relative luminance of WCAG 2, from 0 to 1. */
export function luminanceOf(colour) {
  const [red, green, blue] = channelsOf(colour).map((channel) => channel / 255).map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Return the one of two inks that is easier to read on a colour: at a luminance of 0.19, both have the same contrast. */
export function inkOn(colour, dark = "#0d1117", light = "#ffffff") {
  return luminanceOf(colour) > 0.19 ? dark : light;
}
