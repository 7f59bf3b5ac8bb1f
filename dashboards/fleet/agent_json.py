"""The list of agents as one JSON object, for scripts: the same columns as in the CSV, with lists and null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dashboards.fleet.agent_csv import COLUMNS, format_iso
from fleet.monitoring.views import AgentView, InstanceView
from fleet.vocabulary.instances import InstanceFacts


def to_json_item(view: AgentView, facts_by_id: Mapping[str, InstanceFacts]) -> dict[str, Any]:
    """Return one agent with every column. Ids of instances become names; unknown values are null or empty."""

    def name_of(instance: str | None) -> str | None:
        facts = facts_by_id.get(instance or "")
        return (instance or None) if facts is None else facts.name

    verdict = view.verdict
    proxy_facts = [facts_by_id[proxy] for proxy in view.proxies if proxy in facts_by_id]
    return {
        "id": view.id,
        "name": view.name,
        "state": view.state.slug,
        "reason": verdict.reason.slug,
        "explanation": verdict.sentence,
        "cause": name_of(verdict.cause),
        "since": format_iso(view.since) or None,
        "recovery": verdict.recovery.slug,
        "recovers_at": format_iso(verdict.recovers_at) or None,
        "auth": name_of(view.auth),
        "proxies": [name_of(proxy) for proxy in view.proxies],
        "home_proxy": name_of(view.home_proxy),
        "heartbeat_at": format_iso(view.heartbeat_at) or None,
        "expires_at": format_iso(view.expires_at) or None,
        "mode": view.mode.slug,
        "health_check": view.health_check,
        "policy_read_at": format_iso(view.policy_read_at) or None,
        "groups": sorted({facts.group for facts in proxy_facts} - {""}),
        "generations": sorted({facts.generation for facts in proxy_facts}),
        "version": view.version,
        "labels": dict(view.labels),
    }


def iterate_json_chunks(
    views: Iterable[AgentView],
    instances: Iterable[InstanceView],
    fields: Mapping[str, Any],
    *,
    columns: Sequence[str] = COLUMNS,
    chunk_size: int = 500,
) -> Iterator[str]:
    """Yield an object with `fields`, `columns` and `agents`, in chunks of `chunk_size` agents, a line each."""
    facts_by_id = {instance.facts.id: instance.facts for instance in instances}
    head = json.dumps({**fields, "columns": list(columns)}, ensure_ascii=False)
    yield f'{head[:-1]}, "agents": ['
    lines: list[str] = []
    separator = "\n"
    for view in views:
        fields_of_agent = to_json_item(view, facts_by_id)
        lines.append(
            separator + json.dumps({name: fields_of_agent[name] for name in columns}, ensure_ascii=False)
        )
        separator = ",\n"
        if len(lines) >= chunk_size:
            yield "".join(lines)
            lines = []
    yield "".join([*lines, "\n]}\n"])
