"""Values and their names, shared by models, nodes, commands and pages. No I/O."""

from __future__ import annotations
