/* The newest choices in the palette, per browser: an empty palette shows them first. */

const KEY = "refloat.palette";
const MAX_RECENT = 6;

/** Return the newest choices of a cluster, newest first. `prefix`: prefix of links in the cluster. */
export function readRecent(prefix) {
  return readAll().filter((entry) => entry.prefix === prefix);
}

/** Remember a choice. Its state is left out: it would be out of date. */
export function remember(prefix, { kind, label, url, is_dialog, has_past, theme }) {
  if (theme !== undefined || kind === "cluster") return;
  const entry = { prefix, kind, label, url, is_dialog, has_past };
  const others = readAll().filter((other) => other.prefix !== prefix || other.url !== url || other.label !== label);
  const ofCluster = [entry, ...others.filter((other) => other.prefix === prefix)].slice(0, MAX_RECENT);
  write([...ofCluster, ...others.filter((other) => other.prefix !== prefix)].slice(0, 10 * MAX_RECENT));
}

/** Forget all choices: the next user of this browser must not see them. */
export function forgetRecent() {
  write([]);
}

function readAll() {
  try {
    const entries = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    // Addresses of other sites and scripts cannot be among them, whoever wrote the storage.
    return Array.isArray(entries) ? entries.filter(({ label, url }) => typeof label === "string" && /^\/(?!\/)/.test(url)) : [];
  } catch {
    return [];
  }
}

function write(entries) {
  try {
    localStorage.setItem(KEY, JSON.stringify(entries));
  } catch {
    // Storage is disabled or full: nothing is remembered.
  }
}
