"""The CONNECT port of a proxy, through which users reach services of agents."""

from __future__ import annotations
