/* The form of a cluster: its fields follow the product. Without this script, a button shows them. */

import { announce, fetchPage, swap } from "./page.js";

/** Parts of the form that depend on the product. */
const PARTS = ["addresses", "tls"];

const form = document.querySelector(".cluster-form");
const product = form.elements.source;
let choiceCount = 0;

/** Show the fields of the chosen product. Of several choices in a row, the last one counts. */
async function followProduct() {
  choiceCount += 1;
  const number = choiceCount;
  const sent = readFields();
  const body = new FormData(form);
  for (const input of form.querySelectorAll("[type=file]")) body.delete(input.name);
  body.set("choose", "1");
  const page = await fetchPage(location.href, { method: "POST", body }).catch(() => null);
  if (number !== choiceCount) return;
  if (page === null) loadForm();
  else {
    const typed = [...readFields()].filter(([name, value]) => value !== sent.get(name));
    for (const id of PARTS) swap(document.getElementById(id), document.importNode(page.getElementById(id), true));
    // What was entered while the console answered stays.
    for (const [name, value] of typed) if (form.elements[name]) form.elements[name].value = value;
    announce(`Fields of ${product.selectedOptions[0].text}`, { everyMs: 0 });
  }
}

/** Return the values, by name, of the fields that follow the product. A browser lets no script set a chosen file. */
function readFields() {
  const controls = PARTS.flatMap((id) => [...document.getElementById(id).querySelectorAll("[name]:not([type=file])")]);
  return new Map(controls.map(({ name }) => [name, form.elements[name].value]));
}

/** Load the whole page instead: the console asks for the password, or the browser says what is wrong. */
function loadForm() {
  const choice = document.createElement("input");
  Object.assign(choice, { type: "hidden", name: "choose", value: "1" });
  form.append(choice);
  form.submit();
}

product.addEventListener("change", followProduct);
// A browser may restore another product than the one whose fields the page has.
if (product.querySelector("option[selected]")?.selected === false) followProduct();
