"""What pages, API and sockets share."""

from __future__ import annotations
