"""What operators order that lasts: drains, degradations, retirements."""

from __future__ import annotations
