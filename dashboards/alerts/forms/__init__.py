"""Forms of alerting: rules and agent sets, silences and maintenance windows, notification channels, routes."""
