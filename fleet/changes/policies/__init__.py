"""Changes of env-driven policies. docs/reference/policies.md"""

from __future__ import annotations
