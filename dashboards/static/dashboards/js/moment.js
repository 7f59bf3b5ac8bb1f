/* The past moment of this page: `data-past` of its body. docs/reference/history.md, *Rewind*. */

/** Return the moment that the page shows as ISO 8601, or null for the present. */
export function pastMoment() {
  return document.body.dataset.past ?? null;
}

/** Return a URL that stays in the moment of the page. */
export function addMoment(url) {
  const at = pastMoment();
  return at === null ? url : `${url}${url.includes("?") ? "&" : "?"}at=${encodeURIComponent(at)}`;
}

/** Return the URL of the page of an auth or proxy, in the cluster and at the moment of the page. */
export function instanceUrl(id) {
  return addMoment(`${document.body.dataset.prefix}/instances/${encodeURIComponent(id)}/`);
}
