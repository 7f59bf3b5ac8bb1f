"""API routes of alerting, a module per subject. docs/reference/api.md."""
