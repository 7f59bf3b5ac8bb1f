"""What the source of a cluster cannot do there, for pages and the API: docs/reference/sources.md."""
