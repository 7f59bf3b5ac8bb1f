/* plotly for charts that come into view: the script has 5 MB, so it is loaded once, when it is needed. The
   pages that draw charts have the rules of its style sheet in theirs. */

/** Ids of elements that keep plotly, and the map library in it, from adding style sheets: the CSP rejects them. */
const STYLE_IDS = [
  "plotly.js-style-global",
  "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53",
];

let loading = null;

function holdStyles() {
  for (const id of STYLE_IDS) {
    if (document.getElementById(id) !== null) continue;
    document.head.append(Object.assign(document.createElement("meta"), { id, className: "no-inline-styles" }));
  }
}

/** Load plotly from a URL; rejects if that fails, and the next call tries again. */
export function loadPlotly(url) {
  loading ??= new Promise((done, failed) => {
    holdStyles();
    const script = document.createElement("script");
    script.src = url;
    script.addEventListener("load", done);
    script.addEventListener("error", () => {
      loading = null;
      failed(new Error(`${url} could not be loaded`));
    });
    document.head.append(script);
  });
  return loading;
}

/** Call a function once, as soon as an element comes near the window. */
export function whenInView(element, call) {
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    call();
  }, { rootMargin: "200px" }).observe(element);
}

/** Return a colour of tokens.css in the current theme, in a format that plotly accepts; `area`: where it is used. */
export function ink(area, name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  area.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Return the layout of every chart: no background, the font and the ink of the page. */
export function baseLayout(area, width, height, margin) {
  return {
    template: "none",
    width,
    height,
    margin,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink(area, "--ink") },
    showlegend: false,
  };
}
