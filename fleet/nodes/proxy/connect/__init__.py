"""The CONNECT port of a proxy: users reach services of agents."""

from __future__ import annotations
