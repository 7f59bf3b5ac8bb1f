"""Mutants that behave like the program, each with the reason; they count as killed."""

from __future__ import annotations

from collections.abc import Mapping

#: Reason by module, changed line before and after, without indentation.
EQUIVALENTS: Mapping[tuple[str, str, str], str] = {
    (
        "fleet/protocol/tunnel/server_state.py",
        "_MIN_DEADLINE_LIMIT = 1_000",
        "_MIN_DEADLINE_LIMIT = 1001",
    ): "when old deadlines are removed shows only in the memory of one entry",
    (
        "fleet/monitoring/classify/column_rules.py",
        "if not (mask & out.is_undecided).any():",
        "if not (mask | out.is_undecided).any():",
    ): "saves time only: what follows changes only rows of the mask that are undecided",
    (
        "fleet/monitoring/classify/instances.py",
        "if state is InstanceState.GONE and facts.gone_at is not None:",
        "if state is InstanceState.GONE or facts.gone_at is not None:",
    ): "the state of an instance is GONE exactly if it has this time",
    (
        "fleet/clusters/connection_test/api_steps.py",
        'worker_direction = "behind" if worst > 0 else "ahead of"',
        'worker_direction = "behind" if worst >= 0 else "ahead of"',
    ): "an offset of 0 was OK a few lines before",
    (
        "fleet/changes/networking/closing_plan.py",
        "affected_agents: tuple[str, ...] = field(repr=False, default=())",
        "affected_agents: tuple[str, ...] = field(repr=True, default=())",
    ): "shows only in the text of an object for programmers",
    (
        "fleet/changes/operations/retirements.py",
        "writer: Writer, cluster: str, epoch: str, indices: Sequence[int], *, is_retired: bool",
        "writer: Writer, cluster: str, epoch: str, indices: Sequence[int], /, is_retired: bool",
    ): "every caller names the argument",
}
