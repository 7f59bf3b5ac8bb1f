/* The chart of the History page, drawn by plotly over the drawing of the server once it comes into view: it can be
   zoomed by dragging, shows counts beside the mouse, and a click opens the map at that time. */

/* global Plotly */

import { hideTip, showTip } from "./chart-tip.js";
import { bucketPoints, formatBucket, peakAddress, stepPoints, zoomQuery } from "./history-times.js";
import { isDark } from "./page.js";
import { baseLayout, ink, loadPlotly, whenInView } from "./plotly-loader.js";

const number = new Intl.NumberFormat("en");
/** Height of the chart, px: that of the drawing of the server. */
const HEIGHT = 180;
/** Opacity of the area of stranded agents, as in fleet.css. */
const FILL = 0.45;

/** Draw the chart in `area`. counts: `stranded`, `at_risk` and `peak_starts` by bucket; range: of the page. */
export function startChart(area, counts, range, prefix) {
  /** Theme and width of the last drawing. */
  let drawnLook = "";
  let isWired = false;

  function trace(name, colour, options) {
    return {
      type: "scatter", mode: "lines", ...stepPoints(counts[name], range), connectgaps: false, fill: "tozeroy", hoverinfo: "skip",
      ...options, line: { color: colour, width: 1.75, shape: "linear", ...options.line },
    };
  }

  function traces() {
    const [stranded, atRisk] = [ink(area, "--stranded"), ink(area, "--at_risk")];
    const { x, buckets } = bucketPoints(counts.stranded, range);
    return [
      // Not visible: where the mouse finds every bucket, also those without affected agents.
      { type: "scatter", mode: "markers", x, y: x.map(() => 0), customdata: buckets, marker: { opacity: 0 }, hoverinfo: "none" },
      trace("stranded", stranded, { fillcolor: stranded.replace("rgb(", "rgba(").replace(")", `, ${FILL})`) }),
      trace("at_risk", atRisk, {
        line: { dash: "5px,2.5px" },
        fillpattern: { shape: "-", size: 4, solidity: 0.35, fgcolor: atRisk, bgcolor: "rgba(0,0,0,0)", fillmode: "overlay" },
        fillcolor: "rgba(0,0,0,0)",
      }),
    ];
  }

  function layout() {
    const peak = Math.max(1, ...counts.stranded, ...counts.at_risk);
    const axis = { visible: false, zeroline: false };
    return {
      ...baseLayout(area, area.clientWidth, HEIGHT, { l: 0, r: 0, t: 0, b: 0, pad: 0 }),
      hovermode: "x",
      hoverdistance: -1,
      // On a touch screen, dragging scrolls the page.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: { ...axis, range: [range.since, range.until] },
      yaxis: { ...axis, range: [0, peak * 1.006], fixedrange: true },
    };
  }

  function wire() {
    isWired = true;
    area.on("plotly_hover", ({ points, event }) => {
      const bucket = points[0].customdata;
      const lines = ["stranded", "at_risk"].map((name) => `${number.format(counts[name][bucket] ?? 0)} ${name.replace("_", " ")}`);
      showTip([formatBucket(bucket, range), ...lines], event.clientX, event.clientY);
    });
    area.on("plotly_unhover", hideTip);
    area.on("plotly_click", ({ points }) => {
      location.assign(peakAddress(prefix, counts.peak_starts[points[0].customdata]));
    });
    area.on("plotly_relayout", (change) => {
      const [start, end] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (start !== undefined && end !== undefined) location.assign(zoomQuery([start, end], range));
    });
  }

  async function draw() {
    const look = `${isDark()} ${area.clientWidth}`;
    if (look === drawnLook || area.clientWidth === 0) return;
    drawnLook = look;
    try {
      await loadPlotly(area.dataset.plotly);
    } catch {
      // The drawing of the server stays; the next change of size or theme tries again.
      drawnLook = "";
      return;
    }
    await Plotly.react(area, traces(), layout(), { displayModeBar: false, doubleClick: false, showTips: false });
    if (!isWired) wire();
    area.dataset.drawn = isDark() ? "dark" : "light";
    document.getElementById("chart-hint").hidden = false;
  }

  whenInView(area, () => {
    draw();
    document.addEventListener("themechange", draw);
    new ResizeObserver(draw).observe(area);
  });
}
