"""Pages of runbooks: what a runbook is about now, and its custom text. docs/reference/alerts.md, "Runbooks"."""
