"""The list of agents as CSV (RFC 4180), for spreadsheets and scripts: one line per agent, times in ISO 8601."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dashboards.shared.presenters import moment
from fleet.monitoring.views import AgentView, InstanceView
from fleet.vocabulary.instances import InstanceFacts

COLUMNS = (
    "id", "name", "state", "reason", "explanation", "cause", "since", "recovery", "recovers_at",
    "auth", "proxies", "home_proxy", "heartbeat_at", "expires_at",
    "mode", "health_check", "policy_read_at", "groups", "generations",
)  # fmt: skip
#: Characters that start a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_SWITCH = {None: "", True: "on", False: "off"}


def cell(text: str) -> str:
    """Return `text` as a cell; an apostrophe before it keeps a spreadsheet from running a name as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def row(view: AgentView, instances: Mapping[str, InstanceFacts]) -> list[str]:
    """Return the cells of one agent, in the order of COLUMNS. Ids of `instances` become names.

    Groups and generations are those of the proxies with a tunnel to the agent, without duplicates.
    """

    def name(instance: str | None) -> str:
        facts = instances.get(instance or "")
        return (instance or "") if facts is None else facts.name

    verdict = view.verdict
    proxies = [instances[proxy] for proxy in view.proxies if proxy in instances]
    return [
        cell(text)
        for text in (
            view.id,
            view.name,
            view.state.slug,
            verdict.reason.slug,
            verdict.sentence,
            name(verdict.cause),
            _iso(view.since),
            verdict.recovery.slug,
            _iso(verdict.recovers_at),
            name(view.auth),
            " ".join(name(proxy) for proxy in view.proxies),
            name(view.home_proxy),
            _iso(view.heartbeat_at),
            _iso(view.expires_at),
            view.mode.slug,
            _SWITCH[view.health_check],
            _iso(view.policy_read_at),
            " ".join(sorted({facts.group for facts in proxies} - {""})),
            " ".join(map(str, sorted({facts.generation for facts in proxies}))),
        )
    ]


def lines(
    views: Iterable[AgentView], instances: Iterable[InstanceView], *, chunk_size: int = 500
) -> Iterator[str]:
    """Yield the header line and one line per agent, in chunks of `chunk_size` lines."""
    by_id = {instance.facts.id: instance.facts for instance in instances}
    rows: list[Sequence[str]] = [COLUMNS]
    for view in views:
        rows.append(row(view, by_id))
        if len(rows) >= chunk_size:
            yield _to_csv(rows)
            rows = []
    if rows:
        yield _to_csv(rows)


def _to_csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _iso(at: float | None) -> str:
    timestamp = moment(at)
    return "" if timestamp is None else timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
