"""`refloat fleet`: commands for a local test fleet. docs/reference/local-fleet.md"""

from __future__ import annotations
