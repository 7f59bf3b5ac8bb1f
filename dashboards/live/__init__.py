"""The socket of a fleet. docs/live.md"""

from __future__ import annotations
