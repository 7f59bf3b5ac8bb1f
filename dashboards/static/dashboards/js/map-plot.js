/* The cells: one plotly heat map. After the layout, only its z values change. */

/* global Plotly */

import { STATES, STRANDED } from "./fleet-state.js";

/** Safari blurs images that it scales inside an SVG: there, plotly fills a rectangle per cell, which is slower but sharp. */
const BLURS = /Version\/[\d.]+.*Safari/.test(navigator.userAgent);

export class Plot {
  /** figure: dashboards.fleet.figures.build_map_figure(). */
  constructor(element, figure) {
    this.element = element;
    this.figure = figure;
    this.rows = [];
    this.cells = null;
  }

  /** Redraw everything: after a change of layout, size or theme. */
  async draw(grid, states, shown, dark) {
    this.cells = new Float32Array(grid.cols * grid.rows).fill(NaN);
    this.rows = Array.from({ length: grid.rows }, (_, row) => this.cells.subarray(row * grid.cols, (row + 1) * grid.cols));
    this.fill(grid, states, shown);
    const { trace, layout, config, colourscales } = this.figure;
    await Plotly.react(
      this.element,
      [{ ...trace, z: this.rows.slice(), colorscale: colourscales[dark ? "dark" : "light"], zsmooth: BLURS ? false : trace.zsmooth }],
      {
        ...layout,
        width: grid.cols * grid.cell,
        height: grid.rows * grid.cell,
        xaxis: { ...layout.xaxis, range: [-0.5, grid.cols - 0.5] },
        // The first row is on top.
        yaxis: { ...layout.yaxis, range: [grid.rows - 0.5, -0.5] },
      },
      config,
    );
  }

  /** Colour the cells by state. The outer array must be new, otherwise plotly ignores the change. */
  async update(grid, states, shown) {
    this.fill(grid, states, shown);
    await Plotly.restyle(this.element, { z: [this.rows.slice()] });
  }

  /** Set z to the state, plus the number of states where the filter fades the cell. */
  fill(grid, states, shown) {
    for (let agent = 0; agent < grid.cellOf.length; agent += 1) {
      const state = states?.[agent] ?? 0;
      const cell = grid.cellOf[agent];
      if (cell >= 0) this.cells[cell] = shown(state) ? state : state + STATES.length;
    }
  }
}

/** Return the number of stranded agents per block. */
export function strandedByBlock(grid, states) {
  return grid.blocks.map((block) => {
    let stranded = 0;
    for (const agent of block.agents) if (states[agent] === STRANDED) stranded += 1;
    return stranded;
  });
}
