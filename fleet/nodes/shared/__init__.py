"""Parts that several programs of a fleet share."""

from __future__ import annotations
