/* Where toasts lie over the page: in a corner in which they cover no control. Where every corner has one, as on a full
   page of a phone, they get room of their own below the bar. */

const CORNERS = ["bottom-right", "top-right", "bottom-left", "top-left"];
const CONTROLS = "a[href], button, input, select, textarea, summary, [role=slider], [tabindex='0']:not(.table-frame, #map, main)";
/** Distance between toasts and what they must not cover, px. */
const GAP = 4;

/** Return the boxes of all controls in the window that are not part of the toasts. */
function controlBoxes(toasts) {
  return [...document.querySelectorAll(CONTROLS)]
    .filter((control) => !toasts.contains(control))
    .map((control) => control.getBoundingClientRect())
    .filter(({ width, height, bottom, top }) => width > 1 && height > 1 && bottom > 0 && top < innerHeight);
}

function overlaps(box, other) {
  return other.left < box.right + GAP && other.right > box.left - GAP && other.top < box.bottom + GAP && other.bottom > box.top - GAP;
}

/** Put the toasts where they cover no control. The corner in which they are is kept while it is free. */
export function placeToasts(toasts) {
  if (toasts.childElementCount === 0) {
    delete toasts.dataset.corner;
    return;
  }
  const current = toasts.dataset.corner;
  // Those that have room of their own stay there: the page must not move twice.
  if (current === "none") return;
  const boxes = controlBoxes(toasts);
  const corners = current === undefined ? CORNERS : [current, ...CORNERS.filter((corner) => corner !== current)];
  for (const corner of corners) {
    toasts.dataset.corner = corner;
    const box = toasts.getBoundingClientRect();
    if (!boxes.some((other) => overlaps(box, other))) return;
  }
  toasts.dataset.corner = "none";
}
