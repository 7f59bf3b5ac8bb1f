"""From evidence to verdicts, pure: docs/verdicts.md. The only way from the console's other vocabularies to a verdict.

Sources gather, pollers record, this concludes; page, API, metrics and alerts all show what it says.
"""

from __future__ import annotations

from fleet.classify.agents import classify, classify_in
from fleet.classify.columns import classify_columns
from fleet.classify.frame import FleetFrame, prepare
from fleet.classify.instances import instance_sentence, instance_state
from fleet.classify.memory import Remembered, remember
from fleet.classify.rows import changed, count_states, evidence_of
from fleet.classify.standings import Standing
from fleet.classify.watching import degraded_of, health_of, health_sentence, outcome_of, preference, watched

__all__ = [
    "FleetFrame",
    "Remembered",
    "Standing",
    "changed",
    "classify",
    "classify_columns",
    "classify_in",
    "count_states",
    "degraded_of",
    "evidence_of",
    "health_of",
    "health_sentence",
    "instance_sentence",
    "instance_state",
    "outcome_of",
    "preference",
    "prepare",
    "remember",
    "watched",
]
