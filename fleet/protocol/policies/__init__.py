"""The env-driven policies of auths and proxies. Pure. docs/policies.md"""

from __future__ import annotations
