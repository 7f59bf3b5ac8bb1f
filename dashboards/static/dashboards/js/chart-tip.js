/* The text beside the mouse on the charts of the History page. */

const tip = document.getElementById("chart-tip");
/** Distance to the mouse, px. */
const AWAY = 14;

/** Show lines of text beside a point of the window. */
export function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + AWAY + width > innerWidth ? x - AWAY - width : x + AWAY;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + AWAY, innerHeight - height - 4))}px`;
}

/** Hide the text. */
export function hideTip() {
  tip.hidden = true;
}
