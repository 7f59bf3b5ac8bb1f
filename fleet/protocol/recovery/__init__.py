"""Discovery of auths and proxies, and the connections to them: RFD 226. Pure."""

from __future__ import annotations
