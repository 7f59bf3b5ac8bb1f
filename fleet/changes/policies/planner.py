"""Plans changes of desired values and their rollouts, from the fleet data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, NoEvidenceError, engine
from fleet.changes.base_kind import RecordSnapshot
from fleet.changes.engine import ChangeDraft
from fleet.changes.load_forecast import loads_to_json
from fleet.changes.policies import desired_state, matrix, outlook, restart_times
from fleet.changes.policies.matrix import DesiredValues, InstanceRow, needs_update, resolve_desired_values
from fleet.changes.policies.outlook import PlannedInstance
from fleet.changes.policies.plan_input import agent_counts_by_proxies_of, policy_snapshot_of
from fleet.changes.policies.rollout_forecast import (
    RolloutInstance,
    describe_forecast,
    describe_risk,
    forecast_rollout,
)
from fleet.changes.policies.titles import describe_changes
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.monitoring.views import InstanceView
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS, ROLES
from fleet.vocabulary import rollouts
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.instances import SICK_STATES
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.rollouts import RolloutSettings

#: What an instance serves, by role.
_LOAD_UNITS: Mapping[str, str] = {"auth": "connected agent", "proxy": "tunnel"}


def instance_rows_of(
    cluster: str,
    desired_values: DesiredValues,
    record: RecordSnapshot,
    restarting_ids: Collection[str] = (),
) -> tuple[InstanceRow, ...]:
    """Return every instance with its policies, compared with the desired values. Raises StateError.

    `restarting_ids`: see `matrix.create_matrix`.
    """
    return matrix.create_matrix(
        record.reader.instances(cluster, record.now),
        record.policy_report_store.read(cluster),
        desired_values,
        restarting_ids,
    )


def plan_change(
    cluster: str,
    desired_values: DesiredValues,
    record: RecordSnapshot,
    *,
    revision: str,
    rollout_settings: Mapping[str, object],
    should_roll_out: bool,
    actor: RequestActor,
    now: datetime,
    undone_change_id: int | None = None,
) -> Change:
    """Plan other desired values, and their rollout if `should_roll_out`; return the change.

    A refusal has an audit entry. Raises StaleRevisionError when `revision` is not the present one; ChangeRefusedError
    with problems by `target.NAME`, by the name of a rollout setting, and by `concurrency` when all instances of a role
    would restart at the same time; NoEvidenceError when
    instances would restart without current fleet data, which
    desired values alone do not need; and StateError.
    """
    with engine.record_refused_plan(ChangeKind.POLICY, cluster, actor, now):
        before = desired_state.desired_values_of(cluster)
        if revision != desired_state.revision_of(before):
            raise desired_state.create_stale_error(
                "out of date: the desired values were changed in the meantime"
                if desired_state.find_base_values(cluster, revision) is not None
                else f"{revision[:50]!r} is not a recent revision of the desired values",
                before,
            )
        rows = instance_rows_of(cluster, before, record)
        parsed_settings = rollouts.parse_rollout_settings(rollout_settings)
        after, value_problems = desired_state.check_desired_values(
            desired_values, {row.id: row.role for row in rows}, before
        )
        # All problems are reported at once.
        if problems := {**parsed_settings.problems, **value_problems}:
            raise ChangeRefusedError(
                "; ".join(f"{name}: {reason}" for name, reason in problems.items()), problems
            )
        affected_rows, restarted_rows = _find_affected(rows, after, should_roll_out=should_roll_out)
        if before == after and not restarted_rows:
            raise ChangeRefusedError(_describe_no_changes(affected_rows), {"values": "no changes"})
        unpolled_names = [row.name for row in affected_rows if row.polled_at is None]
        if should_roll_out and unpolled_names:
            raise ChangeRefusedError(
                f"{', '.join(unpolled_names)}: no report of policies yet. Try again in a few seconds"
            )
        _require_available_instances(rows, restarted_rows, parsed_settings.settings)
        try:
            outlook_fields = _outlook_of(cluster, rows, after, restarted_rows, record)
        except NoEvidenceError:
            if restarted_rows:
                raise
            outlook_fields = {}
        views = record.reader.instances(cluster, record.now)
        load_counts = {view.facts.id: view.agent_count for view in views}
        silent_rows = [row for row in affected_rows if should_roll_out and row.is_silent]
        title = (
            describe_changes(before, after, {row.id: row.name for row in rows})
            if undone_change_id is None
            else engine.undo_title_of(undone_change_id)
        )
        draft = ChangeDraft(
            kind=ChangeKind.POLICY,
            title=title,
            before=before,
            after=after,
            plan={
                "question": _question_of(title, restarted_rows, load_counts),
                "restarts": [
                    {
                        "id": instance_row.id,
                        "name": instance_row.name,
                        "agent_count": load_counts.get(instance_row.id, 0),
                    }
                    for instance_row in restarted_rows
                ],
                "manual_restarts": [
                    {
                        "name": instance_row.name,
                        "reason": "" if instance_row.is_silent else instance_row.note,
                    }
                    for instance_row in affected_rows
                    if instance_row not in restarted_rows and instance_row not in silent_rows
                ],
                "silent_instances": [
                    {"name": instance_row.name, "reason": instance_row.note} for instance_row in silent_rows
                ],
                "policies_read_at_connect": _find_names_read_at_connect(before, after),
                **outlook_fields,
                **_rollout_fields_of(
                    cluster,
                    views,
                    record,
                    restarted_rows,
                    parsed_settings.settings,
                    outlook_fields.get("agent_count", 0),
                ),
            },
            affected_count=sum(load_counts.get(row.id, 0) for row in restarted_rows),
            parameters=asdict(parsed_settings.settings),
            undone_change_id=undone_change_id,
        )

        def save_steps(change: Change) -> None:
            RolloutStep.objects.bulk_create(
                RolloutStep(
                    change=change,
                    position=position,
                    instance_id=row.id,
                    name=row.name,
                    desired_values=resolve_desired_values(after, row.role, row.id),
                )
                for position, row in enumerate(restarted_rows)
            )

        return engine.create_change(cluster, draft, actor, now, save_steps)


def preview_outlook(
    cluster: str, target: str, values: Mapping[str, str], record: RecordSnapshot, *, should_roll_out: bool
) -> dict[str, Any]:
    """Return the expected effect of other values of one target, without a plan; empty when it cannot be computed."""
    desired_values = desired_state.desired_values_of(cluster)
    rows, after = instance_rows_of(cluster, desired_values, record), {**desired_values, target: values}
    _, restarted_rows = _find_affected(rows, after, should_roll_out=should_roll_out)
    try:
        return _outlook_of(cluster, rows, after, restarted_rows, record)
    except ChangeRefusedError:
        return {}


def _outlook_of(
    cluster: str,
    rows: Sequence[InstanceRow],
    after: DesiredValues,
    restarted_rows: Sequence[InstanceRow],
    record: RecordSnapshot,
) -> dict[str, Any]:
    """Return the expected effect of other desired values (`outlook.outlook_of`). Raises NoEvidenceError, StateError."""
    interval = record.reader.stream_header(cluster, record.now).interval
    return outlook.outlook_of(
        [
            _planned_instance_of(
                row, resolve_desired_values(after, row.role, row.id), is_restarted=row in restarted_rows
            )
            for row in rows
        ],
        policy_snapshot_of(record.table(cluster), interval, record.now),
    )


def _rollout_fields_of(
    cluster: str,
    views: Sequence[InstanceView],
    record: RecordSnapshot,
    restarted_rows: Sequence[InstanceRow],
    settings: RolloutSettings,
    agent_count: int,
) -> dict[str, Any]:
    """Return the expected duration, reconnects, loads and agents at risk of the restarts."""
    restarted_ids = [row.id for row in restarted_rows]
    counts_by_proxies = agent_counts_by_proxies_of(record.table(cluster)) if restarted_rows else Counter()
    forecast = forecast_rollout(
        [
            RolloutInstance(
                view.facts.id,
                view.facts.name,
                view.facts.kind,
                view.agent_count,
                is_usable=view.state not in SICK_STATES and view.drain_request is None,
                sole_agent_count=counts_by_proxies[frozenset({view.facts.id})],
            )
            for view in sorted(views, key=lambda view: natural_sort_key(view.facts.name))
        ],
        restarted_ids,
        settings.concurrency,
        agent_count,
        {proxies: count for proxies, count in counts_by_proxies.items() if len(proxies) > 1},
    )
    return {
        "duration_seconds": rollouts.estimate_rollout_seconds(
            len(restarted_ids),
            settings,
            restart_times.expected_restart_seconds(cluster, views, restarted_ids),
        ),
        "reconnect_count": forecast.reconnect_count,
        "loads": loads_to_json(forecast.loads),
        "reconnect_sentence": describe_forecast(forecast),
        "risk": asdict(forecast.risk),
        "risk_sentences": describe_risk(
            forecast.risk,
            settings.drain_seconds,
            {view.facts.kind for view in views if view.facts.id in restarted_ids},
        ),
    }


def _find_affected(
    rows: Sequence[InstanceRow], after: DesiredValues, *, should_roll_out: bool
) -> tuple[list[InstanceRow], list[InstanceRow]]:
    """Return the instances that the change affects, and those of them that a rollout restarts."""
    affected_rows = [
        row for row in rows if needs_update(row, resolve_desired_values(after, row.role, row.id))
    ]
    return affected_rows, [row for row in affected_rows if row.is_managed] if should_roll_out else []


def _describe_no_changes(affected_rows: Sequence[InstanceRow]) -> str:
    """Return that a plan has no changes. `affected_rows`: instances that differ, and that no rollout restarts."""
    sentence = "no changes: this sets or removes no desired value, and restarts no instance"
    differing_rows = [f"{row.name} ({row.note})" if row.note else row.name for row in affected_rows]
    return f"{sentence}. Instances that differ: {', '.join(differing_rows)}" if differing_rows else sentence


def _planned_instance_of(
    row: InstanceRow, desired_values: Mapping[str, str], *, is_restarted: bool
) -> PlannedInstance:
    reports = {cell.policy.name: cell.report for cell in row.cells if cell.report is not None}
    return PlannedInstance(
        row.id,
        row.name,
        row.role,
        is_restarted=is_restarted,
        current_values={name: report.current_value.text for name, report in reports.items()},
        planned_values={
            name: report.text_after_accepting(desired_values.get(name, ""))
            for name, report in reports.items()
        },
    )


def _require_available_instances(
    rows: Sequence[InstanceRow], restarted_rows: Sequence[InstanceRow], settings: RolloutSettings
) -> None:
    for role in ROLES:
        instance_count = sum(row.role == role for row in rows)
        restart_count = min(settings.concurrency, sum(row.role == role for row in restarted_rows))
        if 1 < instance_count <= restart_count:
            sentence = (
                f"all {instance_count} {PLURALS[role]} would restart at the same time. "
                "Choose a lower concurrency"
            )
            raise ChangeRefusedError(sentence, {"concurrency": sentence})


def _question_of(title: str, restarted_rows: Sequence[InstanceRow], load_counts: Mapping[str, int]) -> str:
    if not restarted_rows:
        return f"{title}, without restarts?"
    parts = [
        f"{count} {PLURALS[role] if count > 1 else role}"
        for role in ROLES
        if (count := sum(row.role == role for row in restarted_rows))
    ]
    load_texts = [
        f"{count:,} {_LOAD_UNITS[role]}{'' if count == 1 else 's'}"
        for role in ROLES
        if any(row.role == role for row in restarted_rows)
        for count in [sum(load_counts.get(row.id, 0) for row in restarted_rows if row.role == role)]
    ]
    return f"{title}, and restart {' and '.join(parts)} with {' and '.join(load_texts)}?"


def _find_names_read_at_connect(before: DesiredValues, after: DesiredValues) -> list[str]:
    """Return the names of the changed policies that agents read when they connect."""
    names = {
        name
        for target in {*before, *after}
        for name in {*before.get(target, {}), *after.get(target, {})}
        if before.get(target, {}).get(name) != after.get(target, {}).get(name)
    }
    return sorted(name for name in names if BY_NAME[name].is_read_at_connect)
