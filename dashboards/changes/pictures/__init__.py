"""Pictures of plans and of their progress, as geometry for templates. Pure."""

from __future__ import annotations
