"""Faults by a seeded schedule on a whole installation, and invariants after each: `make soak`."""
