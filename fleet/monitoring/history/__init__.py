"""State history of agents and instances in the database."""

from __future__ import annotations
