"""Code shared by pages, API and sockets."""

from __future__ import annotations
