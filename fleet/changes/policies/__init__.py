"""Changes of env-driven policies. docs/policies.md"""

from __future__ import annotations
