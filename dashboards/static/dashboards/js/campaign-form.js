/* The form of a campaign: the forecast follows what is typed. Without it, the next page shows the same numbers. */

import { fetchPart, swap } from "./page.js";

const WAIT_MS = 350;
/** Characters of a query that fits into an address. Longer ones are sent in the body of the request. */
const MOST_IN_ADDRESS = 2000;

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

function fetchForecast(query) {
  if (query.length <= MOST_IN_ADDRESS) return fetchPart(`${form.dataset.forecast}?${query}`, "forecast");
  const body = new URLSearchParams(query);
  body.set("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
  return fetchPart(form.dataset.forecast, "forecast", { method: "POST", body });
}

async function refreshForecast() {
  const query = queryOf(form);
  if (query === shownQuery) return;
  const panel = document.getElementById("forecast");
  panel.setAttribute("aria-busy", "true");
  const fresh = await fetchForecast(query).catch(() => null);
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
