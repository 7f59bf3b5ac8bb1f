"""From a question to a verdict: sources, pollers, the record in Redis, classification, history. docs/flow.md"""

from __future__ import annotations
