"""Sign-in, roles from the identity provider, and API tokens. docs/reference/access.md"""

from __future__ import annotations
