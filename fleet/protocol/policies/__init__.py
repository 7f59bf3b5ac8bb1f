"""The env policies of auths and proxies (settings in environment variables). Pure. docs/reference/policies.md"""

from __future__ import annotations
