"""Classification of agents and instances: states from evidence, without I/O. docs/reference/verdicts.md.

Sources read, pollers record, this package concludes; pages, API, metrics and alerts show its results.
"""

from __future__ import annotations

from fleet.monitoring.classify.agents import classify, classify_in, explain_recorded
from fleet.monitoring.classify.columns import classify_columns
from fleet.monitoring.classify.destination_health import (
    find_degraded_instances,
    health_of,
    health_sentence,
    preference_key_of,
    probe_outcome_of,
    update_watch,
)
from fleet.monitoring.classify.frame import FleetFrame, prepare_frame
from fleet.monitoring.classify.instance_conditions import InstanceCondition
from fleet.monitoring.classify.instances import instance_sentence, instance_state
from fleet.monitoring.classify.memory import MemoryUpdate, update_memory
from fleet.monitoring.classify.places import places_of, presences_of
from fleet.monitoring.classify.rows import count_states, evidence_of

__all__ = [
    "FleetFrame",
    "InstanceCondition",
    "MemoryUpdate",
    "classify",
    "classify_columns",
    "classify_in",
    "count_states",
    "evidence_of",
    "explain_recorded",
    "find_degraded_instances",
    "health_of",
    "health_sentence",
    "instance_sentence",
    "instance_state",
    "places_of",
    "preference_key_of",
    "prepare_frame",
    "presences_of",
    "probe_outcome_of",
    "update_memory",
    "update_watch",
]
