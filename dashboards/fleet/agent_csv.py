"""The list of agents as CSV (RFC 4180), for spreadsheets and scripts: one line per agent, times in ISO 8601."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dashboards.shared.presenters import to_moment_or_none
from fleet.monitoring.views import AgentView, InstanceView
from fleet.vocabulary.instances import InstanceFacts

COLUMNS = (
    "id", "name", "state", "reason", "explanation", "cause", "since", "recovery", "recovers_at",
    "auth", "proxies", "home_proxy", "heartbeat_at", "expires_at",
    "mode", "health_check", "policy_read_at", "groups", "generations",
    "version", "labels",
)  # fmt: skip
#: Characters that start a formula in a spreadsheet.
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n")
_SWITCH_TEXTS = {None: "", True: "on", False: "off"}


def to_csv_cell(text: str) -> str:
    """Return `text` as a cell; an apostrophe before it keeps a spreadsheet from running a name as a formula."""
    return f"'{text}" if text.startswith(_FORMULA_PREFIXES) else text


def to_csv_row(view: AgentView, facts_by_id: Mapping[str, InstanceFacts]) -> list[str]:
    """Return the cells of one agent, in the order of COLUMNS. Ids of instances become names.

    Labels are a JSON object. Groups and generations are those of the proxies with a tunnel to the agent, without
    duplicates.
    """

    def name_of(instance: str | None) -> str:
        facts = facts_by_id.get(instance or "")
        return (instance or "") if facts is None else facts.name

    verdict = view.verdict
    proxy_facts = [facts_by_id[proxy] for proxy in view.proxies if proxy in facts_by_id]
    return [
        to_csv_cell(text)
        for text in (
            view.id,
            view.name,
            view.state.slug,
            verdict.reason.slug,
            verdict.sentence,
            name_of(verdict.cause),
            format_iso(view.since),
            verdict.recovery.slug,
            format_iso(verdict.recovers_at),
            name_of(view.auth),
            " ".join(name_of(proxy) for proxy in view.proxies),
            name_of(view.home_proxy),
            format_iso(view.heartbeat_at),
            format_iso(view.expires_at),
            view.mode.slug,
            _SWITCH_TEXTS[view.health_check],
            format_iso(view.policy_read_at),
            " ".join(sorted({facts.group for facts in proxy_facts} - {""})),
            " ".join(map(str, sorted({facts.generation for facts in proxy_facts}))),
            view.version,
            json.dumps(dict(view.labels), ensure_ascii=False) if view.labels else "",
        )
    ]


def iterate_csv_chunks(
    views: Iterable[AgentView],
    instances: Iterable[InstanceView],
    *,
    columns: Sequence[str] = COLUMNS,
    chunk_size: int = 500,
) -> Iterator[str]:
    """Yield the header line and one line per agent, in chunks of `chunk_size` lines; `columns`: some of COLUMNS."""
    positions = [COLUMNS.index(column) for column in columns]
    facts_by_id = {instance.facts.id: instance.facts for instance in instances}
    rows: list[Sequence[str]] = [columns]
    for view in views:
        row = to_csv_row(view, facts_by_id)
        rows.append([row[position] for position in positions])
        if len(rows) >= chunk_size:
            yield _to_csv(rows)
            rows = []
    if rows:
        yield _to_csv(rows)


def _to_csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def format_iso(at: float | None) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC; empty if there is no such time."""
    timestamp = to_moment_or_none(at)
    return "" if timestamp is None else timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
