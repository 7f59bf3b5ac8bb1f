"""Who people are, and their tokens. docs/access.md"""

from __future__ import annotations
