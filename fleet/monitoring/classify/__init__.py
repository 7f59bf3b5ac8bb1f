"""From evidence to verdicts, pure: docs/verdicts.md. The only way from the console's other vocabularies to a verdict.

Sources gather, pollers record, this concludes; page, API, metrics and alerts all show what it says.
"""

from __future__ import annotations

from fleet.monitoring.classify.agents import classify, classify_in
from fleet.monitoring.classify.columns import classify_columns
from fleet.monitoring.classify.destination_health import (
    find_degraded_instances,
    health_of,
    health_sentence,
    probe_outcome_of,
    preference_key_of,
    update_watch,
)
from fleet.monitoring.classify.frame import FleetFrame, prepare_frame
from fleet.monitoring.classify.instances import instance_sentence, instance_state
from fleet.monitoring.classify.memory import MemoryUpdate, update_memory
from fleet.monitoring.classify.rows import find_changed_agents, count_states, evidence_of
from fleet.monitoring.classify.standings import InstanceCondition

__all__ = [
    "FleetFrame",
    "MemoryUpdate",
    "InstanceCondition",
    "find_changed_agents",
    "classify",
    "classify_columns",
    "classify_in",
    "count_states",
    "find_degraded_instances",
    "evidence_of",
    "health_of",
    "health_sentence",
    "instance_sentence",
    "instance_state",
    "probe_outcome_of",
    "preference_key_of",
    "prepare_frame",
    "update_memory",
    "update_watch",
]
