"""Health, metrics and error pages of the console itself."""

from __future__ import annotations
