"""What machines and browsers ask of the console itself."""

from __future__ import annotations
