"""What routes of the API share."""

from __future__ import annotations
