"""Commands on incidents, silences and maintenance windows."""
