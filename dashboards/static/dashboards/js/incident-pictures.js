/* Charts of an incident: a heat map of the agents by two attributes, and ribbons of common attributes. plotly is
   loaded only when the charts come into view. */

/* global Plotly */

import { isDark } from "./page.js";
import { baseLayout, ink, loadPlotly, whenInView } from "./plotly-loader.js";

/** Height of a row of the heat map, and minimum and maximum height of the heat map, px. */
const ROW = 30;
const HEIGHT = [150, 560];
/** Minimum width of the ribbons, px: their labels need it. Narrow screens scroll. */
const RIBBONS_LEAST = 560;

const area = document.getElementById("pictures");
const crossing = document.getElementById("crossing");
const ribbons = document.getElementById("ribbons");

let seen = false;
let drawn = "";

/** Return plotly's colour scale of a share, as the legend has it: the largest has the strongest contrast. */
function shareScale() {
  return [0, 1, 2, 3, 4].map((step) => [step / 4, ink(area, `--scale-${step}`)]);
}

/** Return the colours of ribbons: those of the states, or calm ones once the incident is over. */
function ribbonScale({ colours, is_past: isPast }) {
  if (isPast) return [[0, ink(area, "--scale-2")], [1, ink(area, "--scale-4")]];
  return colours[isDark() ? "dark" : "light"];
}

async function drawCrossing({ rows, columns, z, text }) {
  const height = Math.min(HEIGHT[1], Math.max(HEIGHT[0], rows.length * ROW + 60));
  const axis = { type: "category", fixedrange: true, showgrid: false, zeroline: false, automargin: true, ticks: "" };
  await Plotly.react(
    crossing,
    [{
      type: "heatmap", x: columns, y: rows, z, text, texttemplate: "%{text}", zmin: 0, zmax: 100, colorscale: shareScale(),
      xgap: 2, ygap: 2, hoverinfo: "skip", hoverongaps: false,
      // The caption explains the scale: plotly draws its own with style attributes, which the CSP forbids.
      showscale: false,
    }],
    {
      ...baseLayout(area, crossing.parentElement.clientWidth, height, { l: 60, r: 10, t: 24, b: 8 }),
      xaxis: { ...axis, side: "top" },
      // Rows with the most affected agents come first.
      yaxis: { ...axis, autorange: "reversed" },
    },
    { staticPlot: true, displayModeBar: false },
  );
}

async function drawRibbons({ dimensions, counts, stranded }, colours) {
  await Plotly.react(
    ribbons,
    [{
      type: "parcats", dimensions, counts, hoverinfo: "skip", arrangement: "fixed", sortpaths: "forward",
      line: { color: stranded, cmin: 0, cmax: 1, colorscale: colours, shape: "hspline" },
      labelfont: { size: 12, color: ink(area, "--ink-2") },
      tickfont: { size: 12, color: ink(area, "--ink") },
    }],
    baseLayout(area, Math.max(RIBBONS_LEAST, ribbons.parentElement.clientWidth), 320, { l: 70, r: 90, t: 28, b: 8 }),
    { staticPlot: true, displayModeBar: false },
  );
}

/** Draw the charts from the page's current data, or hide them if no agents are affected any more. */
async function draw() {
  const data = document.getElementById("pictures-json")?.textContent ?? "";
  area.hidden = data === "";
  if (data === "" || !seen) return;
  const wanted = `${isDark()} ${area.clientWidth} ${data}`;
  if (wanted === drawn) return;
  drawn = wanted;
  try {
    await loadPlotly(area.dataset.plotly);
  } catch {
    // The text is on the page; the next refresh tries again.
    drawn = "";
    return;
  }
  const found = JSON.parse(data);
  await drawCrossing(found.heat_map);
  await drawRibbons(found.ribbons, ribbonScale(found));
  area.dataset.drawn = isDark() ? "dark" : "light";
}

whenInView(area, () => {
  seen = true;
  draw();
});
document.addEventListener("refreshed", draw);
document.addEventListener("themechange", draw);
new ResizeObserver(draw).observe(area);
draw();
