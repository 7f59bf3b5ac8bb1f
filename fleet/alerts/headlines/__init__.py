"""The headline of a fleet: one text about the cause, everywhere the same."""
