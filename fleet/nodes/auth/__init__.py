"""The auth server."""

from __future__ import annotations
