"""How agents find, keep and change their ways to auths and proxies: RFD 226. Pure."""

from __future__ import annotations
