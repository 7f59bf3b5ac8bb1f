"""From evidence to verdicts, pure: docs/verdicts.md. The only way from the console's other vocabularies to a verdict.

Sources gather, pollers record, this concludes; page, API, metrics and alerts all show what it says.
"""

from __future__ import annotations

from fleet.classify.agents import classify, classify_in
from fleet.classify.frame import FleetFrame, prepare
from fleet.classify.instances import instance_sentence, instance_state
from fleet.classify.standings import Standing

__all__ = [
    "FleetFrame",
    "Standing",
    "classify",
    "classify_in",
    "instance_sentence",
    "instance_state",
    "prepare",
]
