"""Child processes: start, supervise, restart and stop them; the embedded Valkey; log format."""

from __future__ import annotations
