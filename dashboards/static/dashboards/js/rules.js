/* The result of a backtest belongs to the values with which it ran. */

const section = document.getElementById("backtest");
const form = document.querySelector("form:has(.rule-sentence)");

form?.addEventListener("input", () => {
  if (section.querySelector(".backtest, .table-frame, .help") === null) return;
  document.getElementById("backtest-outdated").hidden = false;
  section.classList.add("spent");
});
