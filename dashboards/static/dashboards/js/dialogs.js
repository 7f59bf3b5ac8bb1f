/* Forms in dialogs. A link or a submit button with data-dialog opens the part of its page that is marked
   data-dialog-body, in a dialog over this page. Without this script, the page itself opens.

   data-dialog-body="wide"   a wider dialog
   data-dialog-close         closes the dialog: a link or a button in it
   data-busy="Retiring…"     text of a submit button while its request runs
   data-dialog-refresh       a part of the dialog, with an id, that is fetched again while the dialog is open
   autofocus                 the element that gets the focus

   When a form of a dialog has done its work, the document gets the event "dialog-done". */

import { enableFillButtons } from "./fields.js";
import { adoptTimes, announce, parsePage } from "./page.js";

/** The console answers a redirect to a request with this header in another header: see dashboards/middleware.py. */
const DIALOG_HEADER = "X-Refloat-Dialog";
const LOCATION_HEADER = "X-Refloat-Location";
/** After this time, an empty dialog says that it is loading; a running request, that it may be left. */
const SLOW_MS = 250;
const LONG_MS = 4_000;
const REFRESH_MS = 1_500;
/** Attributes with ids of other elements. */
const ID_REFERENCES = ["for", "aria-labelledby", "aria-describedby", "aria-controls", "aria-errormessage", "form", "list"];
/** Pages that ask to sign in again: a form that leads there has not done its work yet. */
const SIGN_IN_PATH = "/accounts/";
const URL_ATTRIBUTES = ["href", "action", "formaction"];

const dialog = document.createElement("dialog");
dialog.className = "dialog";
dialog.id = "dialog";
dialog.setAttribute("aria-labelledby", "dialog-title");

/** What opened the dialog, and how to find it after a refresh has replaced it. */
let opener = null;
/** Number of the request whose answer the dialog waits for: answers to older ones are dropped. */
let requestNumber = 0;
/** Address of the page that the dialog shows. */
let shownUrl = "";
/** The dialog is closed, and a page for it was requested. */
let isOpening = false;
/** A pointer went down on the backdrop: a drag that only ends there, as when text is selected, closes nothing. */
let isBackdropPressed = false;

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

/** Fetch `url`; return {location} for a redirect, otherwise {page, url, isError}. Throws if the console does not respond. */
async function request(url, options = {}) {
  const answer = await fetch(url, { ...options, headers: { [DIALOG_HEADER]: "1" } });
  const location = answer.headers.get(LOCATION_HEADER);
  if (location !== null) return { location: new URL(location, answer.url) };
  return { page: parsePage(await answer.text()), url: answer.url, isError: !answer.ok };
}

/** Go to a page; also if it is this one, which then shows the message of the action. */
function goTo(url) {
  if (url.pathname === location.pathname && url.search === location.search && url.origin === location.origin) {
    // A reload keeps the old fragment, which names another part of the page.
    history.replaceState(history.state, "", url);
    location.reload();
  } else {
    location.assign(url);
  }
}

/** Return the content of a page for the dialog, or null if the page has none: {title, body, isWide}. */
function readPage({ page, url, isError }) {
  let source = page.querySelector("[data-dialog-body]");
  if (source === null && isError) source = page.querySelector(".error-page") ?? page.querySelector("main");
  if (source === null) return null;
  const heading = source.querySelector("h1, h2") ?? page.getElementById(source.getAttribute("aria-labelledby") ?? "") ?? page.querySelector("h1");
  const title = heading?.textContent.trim() ?? "";
  const body = element("div", `${source.className} dialog-body`);
  body.append(...[...source.childNodes].map((node) => document.importNode(node, true)));
  body.querySelector("h1, h2")?.remove();
  for (const name of URL_ATTRIBUTES) {
    for (const link of body.querySelectorAll(`:is(a, form, button, input)[${name}]`)) {
      if (!link.getAttribute(name).startsWith("#")) link.setAttribute(name, new URL(link.getAttribute(name), url).href);
    }
  }
  for (const form of body.querySelectorAll("form:not([action])")) form.action = url;
  separateIds(body);
  enableFillButtons(body);
  return { title, body, isWide: source.dataset.dialogBody === "wide" };
}

/** Rename the ids in a part that the page has too: a label must not name a field of the page below. */
function separateIds(body) {
  const renamed = new Map();
  for (const named of body.querySelectorAll("[id]")) {
    const other = document.getElementById(named.id);
    if (other === null || dialog.contains(other)) continue;
    renamed.set(named.id, `dialog-${named.id}`);
    named.id = renamed.get(named.id);
  }
  for (const name of ID_REFERENCES) {
    for (const reference of body.querySelectorAll(`[${name}]`)) {
      const ids = reference.getAttribute(name).split(/\s+/).map((id) => renamed.get(id) ?? id);
      reference.setAttribute(name, ids.join(" "));
    }
  }
}

/** Reasons that were typed and not sent, by path of their form: neither Cancel nor Esc loses them. */
const reasons = new Map();

function keyOf(form) {
  return new URL(form.getAttribute("action"), location.href).pathname;
}

function keepReasons() {
  for (const field of dialog.querySelectorAll("form[action] [name=reason]")) reasons.set(keyOf(field.form), field.value);
}

function restoreReasons(body) {
  for (const field of body.querySelectorAll("form[action] [name=reason]")) {
    if (field.value === "") field.value = reasons.get(keyOf(field.form)) ?? "";
  }
}

/** Show content in the dialog, and open it. */
function show({ title, body, isWide = false }) {
  const head = element("header", "dialog-head");
  const heading = element("h2", "dialog-title", title);
  heading.id = "dialog-title";
  heading.tabIndex = -1;
  const close = element("button", "icon-button", "✕");
  close.type = "button";
  close.dataset.dialogClose = "";
  close.setAttribute("aria-label", "Close");
  head.append(heading, close);
  if (!dialog.open) restoreReasons(body);
  dialog.replaceChildren(head, body);
  dialog.classList.toggle("dialog-wide", isWide);
  dialog.removeAttribute("aria-busy");
  if (!dialog.open) dialog.showModal();
  isOpening = false;
  dialog.scrollTop = 0;
  adoptTimes(dialog);
  const field = body.querySelector(":is(input, select, textarea)[aria-invalid=true], .field-wrong :is(input, select, textarea)")
    ?? body.querySelector("[autofocus]")
    ?? body.querySelector(":is(input:not([type=hidden]), select, textarea, button, .button):not([disabled])");
  (field ?? heading).focus();
}

/** Show that the console did not respond, with a button that repeats the request. */
function showUnreachable(title, repeat) {
  const body = element("div", "dialog-body stack");
  const error = element("p", "error", "The console does not respond. Check your connection, then try again.");
  error.setAttribute("role", "alert");
  const actions = element("p", "panel-actions");
  const again = element("button", "button button-main", "Try again");
  again.type = "button";
  again.addEventListener("click", repeat);
  const cancel = element("button", "button", "Cancel");
  cancel.type = "button";
  cancel.dataset.dialogClose = "";
  actions.append(again, cancel);
  body.append(error, actions);
  show({ title, body });
}

/** Open the page at `url` in the dialog. title: shown until the page arrives. */
async function open(url, title, options) {
  const number = (requestNumber += 1);
  isOpening = !dialog.open;
  const slow = setTimeout(() => {
    const body = element("div", "dialog-body");
    body.append(element("p", "quiet", "Loading…"));
    show({ title, body });
    dialog.setAttribute("aria-busy", "true");
  }, SLOW_MS);
  try {
    const answer = await request(url, options);
    if (number !== requestNumber) return;
    if (answer.location !== undefined) return goTo(answer.location);
    const content = readPage(answer);
    // The page is no form for a dialog: it opens as itself.
    if (content === null) return goTo(new URL(url));
    clearTimeout(slow);
    shownUrl = url;
    show(content);
  } catch {
    if (number === requestNumber) showUnreachable(title, () => open(url, title, options));
  } finally {
    clearTimeout(slow);
  }
}

/** Fetch the parts of the dialog again that change while somebody reads them: what they say must still be true. */
async function refreshParts() {
  const number = requestNumber;
  if (!dialog.open || dialog.hasAttribute("aria-busy") || dialog.querySelector("[data-dialog-refresh]") === null) return;
  const answer = await request(shownUrl).catch(() => null);
  if (answer?.page === undefined || number !== requestNumber || dialog.hasAttribute("aria-busy")) return;
  for (const part of dialog.querySelectorAll("[data-dialog-refresh]")) {
    const fresh = answer.page.getElementById(part.id.replace(/^dialog-/, ""));
    if (fresh !== null) part.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
  }
}

/** Return the request that submits a form: its URL and options. */
function readForm(form, submitter) {
  const data = new FormData(form, submitter);
  const url = new URL(submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "", location.href);
  const method = submitter?.getAttribute("formmethod") ?? form.method;
  if (method.toLowerCase() === "get") {
    url.search = new URLSearchParams(data).toString();
    return { url: url.href, options: {} };
  }
  const body = form.enctype === "multipart/form-data" ? data : new URLSearchParams(data);
  return { url: url.href, options: { method: "POST", body } };
}

/** Submit a form of the dialog. A page in response is the form again, with its errors and what was typed. */
async function submit(form, submitter) {
  if (dialog.hasAttribute("aria-busy")) return;
  const number = (requestNumber += 1);
  const { url, options } = readForm(form, submitter);
  const label = submitter?.textContent;
  dialog.setAttribute("aria-busy", "true");
  dialog.querySelector(".dialog-status")?.remove();
  submitter?.setAttribute("aria-disabled", "true");
  if (submitter) submitter.textContent = submitter.dataset.busy ?? `${label.trim().replace(/[.…]+$/, "")}…`;
  const status = element("p", "dialog-status quiet");
  status.setAttribute("role", "status");
  form.append(status);
  const long = setTimeout(() => (status.textContent = "The console is still working. You can close this dialog: the request continues."), LONG_MS);
  const restore = () => {
    dialog.removeAttribute("aria-busy");
    submitter?.removeAttribute("aria-disabled");
    if (submitter) submitter.textContent = label;
  };
  try {
    const answer = await request(url, options);
    const isCurrent = number === requestNumber && dialog.open;
    if (answer.location !== undefined) {
      reasons.delete(keyOf(form));
      if (!answer.location.pathname.startsWith(SIGN_IN_PATH)) document.dispatchEvent(new Event("dialog-done"));
      if (isCurrent) goTo(answer.location);
      else announce("The request is finished. The next page shows its result.", { everyMs: 0 });
      return;
    }
    const content = readPage(answer);
    if (content !== null && (isCurrent || !dialog.open)) show(content);
    else restore();
  } catch {
    restore();
    if (number !== requestNumber) return;
    if (!dialog.open) dialog.showModal();
    status.className = "dialog-status error";
    status.setAttribute("role", "alert");
    status.textContent = "The console does not respond, so it is unknown whether the request arrived. Check your connection, then try again.";
  } finally {
    clearTimeout(long);
  }
}

/** Note what opens the dialog, with a selector for its replacement. */
function remember(link) {
  const href = link.getAttribute("href");
  const selector = href ? `a[data-dialog][href="${CSS.escape(href)}"]` : link.id ? `#${CSS.escape(link.id)}` : null;
  opener = { link, selector };
}

/** Move the focus back to what opened the dialog, or to what has replaced it. */
function returnFocus() {
  if (opener === null) return;
  const { link, selector } = opener;
  const target = link.isConnected ? link : selector === null ? null : document.querySelector(selector);
  opener = null;
  (target ?? document.getElementById("main"))?.focus({ preventScroll: true });
}

function openLink(event) {
  const link = event.target.closest("a[data-dialog]");
  // Other buttons and modifiers open the page in a tab or window, as with every link.
  if (link === null || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (!dialog.contains(link)) remember(link);
  open(link.href, link.textContent.trim().replace(/…/, ""));
}

document.addEventListener("click", openLink);

document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (event.defaultPrevented) return;
  if (dialog.contains(form)) {
    event.preventDefault();
    submit(form, submitter);
  } else if (submitter?.dataset.dialog !== undefined) {
    event.preventDefault();
    remember(submitter);
    const { url, options } = readForm(form, submitter);
    open(url, submitter.textContent.trim().replace(/…/, ""), options);
  }
});

dialog.addEventListener("click", (event) => {
  if (event.target.closest("[data-dialog-close]") === null) return;
  event.preventDefault();
  dialog.close();
});
dialog.addEventListener("pointerdown", (event) => {
  isBackdropPressed = event.target === dialog && !isInside(event);
});
dialog.addEventListener("pointerup", (event) => {
  if (isBackdropPressed && event.target === dialog && !isInside(event)) dialog.close();
  isBackdropPressed = false;
});
/** Return whether a pointer is inside the dialog; on its backdrop, events have the dialog as their target too. */
function isInside({ clientX, clientY }) {
  const box = dialog.getBoundingClientRect();
  return clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
}
// Shortcuts of the page below are not meant while the dialog is open.
dialog.addEventListener("keydown", (event) => dialog.open && event.stopPropagation());
dialog.addEventListener("close", () => {
  // This event comes a moment after the dialog was closed: it may be opening again.
  if (isOpening) return;
  keepReasons();
  // An answer that is still on its way opens nothing.
  if (!dialog.hasAttribute("aria-busy") || dialog.querySelector("form") === null) requestNumber += 1;
  dialog.removeAttribute("aria-busy");
  returnFocus();
});
// A page from the browser's cache must not show the dialog that led away from it.
window.addEventListener("pageshow", (event) => event.persisted && dialog.open && dialog.close());

setInterval(refreshParts, REFRESH_MS);

document.body.append(dialog);
