"""Shared parts of the API routes."""

from __future__ import annotations
