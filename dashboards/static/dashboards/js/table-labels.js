/* Tables that fold on a phone (class "folds"): with data-labels, each cell gets the heading of its column as its label. */

/** Label the cells of all such tables below `root`. */
function labelCells(root) {
  for (const table of root.querySelectorAll("table.folds[data-labels]")) {
    const headings = [...table.querySelectorAll("thead th")].map((heading) => (heading.querySelector(":scope > .sr") === null ? heading.textContent.trim() : ""));
    for (const row of table.querySelectorAll("tbody tr")) {
      for (const cell of row.cells) {
        const label = headings[cell.cellIndex];
        const isLabelled = cell.localName === "td" && cell.colSpan === 1 && cell.textContent.trim() !== "";
        if (isLabelled && label) cell.dataset.label ??= label;
      }
    }
  }
}

labelCells(document);
// Refreshed parts, and the content of dialogs.
new MutationObserver(() => labelCells(document)).observe(document.body, { childList: true, subtree: true });
