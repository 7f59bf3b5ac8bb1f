/* The form of a campaign: the forecast follows what is typed. Without it, the next page shows the same numbers. */

import { fetchPart, swap } from "./page.js";

const WAIT_MS = 350;

const form = document.getElementById("campaign-form");
let timer = 0;
let shownQuery = queryOf(form);

function queryOf(element) {
  const query = new URLSearchParams();
  for (const name of ["connection", "q", "proxy", "auth", "agents"]) {
    const text = new FormData(element).get(name);
    if (text) query.set(name, text);
  }
  return query.toString();
}

/** A proxy to leave means that tunnels move, an auth to leave that auth connections move. */
function selectConnection(changed) {
  if (changed.value === "" || (changed.name !== "proxy" && changed.name !== "auth")) return;
  const isAuth = changed.name === "auth";
  form.elements[isAuth ? "proxy" : "auth"].value = "";
  document.getElementById(isAuth ? "connection-auth" : "connection-tunnel").checked = true;
}

async function refreshForecast() {
  const query = queryOf(form);
  if (query === shownQuery) return;
  const panel = document.getElementById("forecast");
  panel.setAttribute("aria-busy", "true");
  const fresh = await fetchPart(`${form.dataset.forecast}?${query}`, "forecast").catch(() => null);
  if (query !== queryOf(form)) return;
  panel.removeAttribute("aria-busy");
  if (fresh === null) return;
  shownQuery = query;
  swap(panel, fresh);
}

form.addEventListener("input", (event) => {
  selectConnection(event.target);
  clearTimeout(timer);
  timer = setTimeout(refreshForecast, WAIT_MS);
});
