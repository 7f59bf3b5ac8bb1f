"""From evidence to verdicts, pure: docs/verdicts.md. The only way from the console's other vocabularies to a verdict.

Sources gather, pollers record, this concludes; page, API, metrics and alerts all show what it says.
"""

from __future__ import annotations

from fleet.monitoring.classify.agents import classify, classify_in
from fleet.monitoring.classify.columns import classify_columns
from fleet.monitoring.classify.destination_health import (
    degraded_of,
    health_of,
    health_sentence,
    outcome_of,
    preference,
    watched,
)
from fleet.monitoring.classify.frame import FleetFrame, prepare
from fleet.monitoring.classify.instances import instance_sentence, instance_state
from fleet.monitoring.classify.memory import Remembered, remember
from fleet.monitoring.classify.rows import changed, count_states, evidence_of
from fleet.monitoring.classify.standings import Standing

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
