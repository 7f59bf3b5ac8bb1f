/* Where toasts are shown: beside the controls of the page, not over them. Pure: no DOM. */

const MARGIN = 16;
const STEP = 24;

function overlaps(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/**
 * Return where a box of a size covers the fewest controls: {isLeft, bottom}, px from the edges of the window. The
 * lowest place at the right edge wins, then at the left edge.
 *
 * room: {width, windowHeight, top, bottom} of the window without its bars; controls: rectangles as of getBoundingClientRect.
 */
export function placeBox({ width, height }, room, controls) {
  let best = { isLeft: false, top: room.bottom - MARGIN - height, count: Infinity };
  for (let top = room.bottom - MARGIN - height; top >= room.top + MARGIN; top -= STEP) {
    for (const isLeft of [false, true]) {
      const left = isLeft ? MARGIN : room.width - MARGIN - width;
      const box = { left, right: left + width, top, bottom: top + height };
      const count = controls.filter((control) => overlaps(box, control)).length;
      if (count < best.count) best = { isLeft, top, count };
      if (count === 0) return { isLeft, bottom: room.windowHeight - top - height };
    }
  }
  return { isLeft: best.isLeft, bottom: room.windowHeight - best.top - height };
}
