/* The History page: its chart, and the heat strips of proxies and auths. */

import { startStrip } from "./heat-strip.js";
import { startChart } from "./history-chart.js";

const element = document.getElementById("history-json");
if (element !== null) {
  const { chart, strips, prefix, ...range } = JSON.parse(element.textContent);
  startChart(document.getElementById("history-plot"), chart, range, prefix);
  const hasData = chart.stranded.map((count) => count !== null);
  for (const frame of document.querySelectorAll(".strip-frame")) startStrip(frame, strips[frame.dataset.noun], range, hasData, prefix);
}
