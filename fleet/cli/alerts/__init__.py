"""Commands on incidents, silences, maintenance windows, and the configuration of alerting."""
