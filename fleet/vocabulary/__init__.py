"""What models, nodes, commands and pages share: the values and their names. Pure."""

from __future__ import annotations
