"""Objects of a cluster in the palette: agents, instances, incidents and changes."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from dashboards.palette.agent_names import find_agents
from dashboards.palette.entries import EntryGroup, EntryKind, PaletteEntry, match_entries
from dashboards.palette.object_links import agent_url, instance_url
from dashboards.palette.ranking import normalize, rank_best
from dashboards.shared import edge_instances
from fleet.models.changes import Change
from fleet.models.incidents import Incident
from fleet.monitoring.state.tables import sort_instances
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.changes import state_label_of
from fleet.vocabulary.incidents import OPEN_STATES, IncidentState, Severity
from fleet.vocabulary.verdicts import State

#: Newest incidents and changes that are searched; older ones are found by their number only.
MAX_SEARCHED_ROWS = 1_000


def search_agents(table: FleetTable, prefix: str, query: str, limit: int) -> EntryGroup:
    """Return the agents whose name or id matches a normalized query."""
    matches = find_agents(table, query, limit)
    entries = []
    for index in matches.indices:
        state, name, agent_id = (
            State(int(table.verdicts["state"][index])),
            table.names[index],
            table.ids[index],
        )
        note = state.look.label or state.slug
        entries.append(
            PaletteEntry(
                name,
                agent_url(prefix, agent_id),
                note=note if name == agent_id else f"{note} · {agent_id}",
                state=state.slug,
                has_past=True,
            )
        )
    best_rank = 0
    if matches.indices:
        first = matches.indices[0]
        best_rank = int(rank_best((normalize(table.names[first]), normalize(table.ids[first])), query) or 0)
    return EntryGroup(
        EntryKind.AGENT,
        tuple(entries),
        matches.total_count,
        best_rank,
        f"{prefix}/agents/?q={quote(query)}" if matches.total_count > len(entries) else "",
    )


def list_instances(table: FleetTable, prefix: str) -> Iterator[PaletteEntry]:
    """Yield the auths and proxies of a cluster."""
    for view in sort_instances(table.instances.values()):
        label = view.state.look.label or view.state.slug
        yield PaletteEntry(
            view.facts.name,
            instance_url(prefix, view.facts.id),
            note=f"{view.facts.kind.value} · {label}",
            state=view.state.slug,
            keywords=(view.facts.id, f"{view.facts.kind.value} {view.facts.name}"),
        )


def list_edge_instances(cluster: str, prefix: str, now: float) -> Iterator[PaletteEntry]:
    """Yield the gateways and tunnel servers of a cluster. Raises StateUnavailableError."""
    for row in edge_instances.read_edge_rows(cluster, edge_instances.read_edge_addresses(cluster), now):
        kind = row.kind.label if row.kind is not None else "gateway or tunnel server"
        yield PaletteEntry(
            row.name,
            f"{prefix}{row.path}",
            note=f"{kind} · {row.shown_state.label}",
            state=row.state.slug,
            keywords=(row.address, f"{kind} {row.name}"),
        )


def search_incidents(cluster: str, prefix: str, query: str, limit: int) -> EntryGroup:
    """Return the incidents that match by number, cause or summary; open ones first."""
    columns = ("pk", "cause_name", "summary", "state", "severity")
    rows = Incident.objects.filter(cluster=cluster).exclude(state=IncidentState.PENDING.value)
    found_rows = list(rows.values_list(*columns)[:MAX_SEARCHED_ROWS])
    if (number := _number_in(query)) is not None and all(row[0] != number for row in found_rows):
        found_rows += rows.filter(pk=number).values_list(*columns)
    found_rows.sort(key=lambda row: row[3] not in OPEN_STATES)
    return match_entries(
        EntryKind.INCIDENT,
        (
            PaletteEntry(
                f"Incident {pk}: {summary.rstrip('.') or cause_name}",
                f"{prefix}/incidents/{pk}/",
                note=f"{Severity(severity).slug} · {state}",
                keywords=(str(pk), f"#{pk}", cause_name, summary),
            )
            for pk, cause_name, summary, state, severity in found_rows
        ),
        query,
        limit,
    )


def search_changes(cluster: str, prefix: str, query: str, limit: int) -> EntryGroup:
    """Return the changes that match by number or title; the newest come first."""
    columns = ("pk", "title", "state", "started_at")
    rows = Change.objects.filter(cluster=cluster)
    found_rows = list(rows.values_list(*columns)[:MAX_SEARCHED_ROWS])
    if (number := _number_in(query)) is not None and all(row[0] != number for row in found_rows):
        found_rows += rows.filter(pk=number).values_list(*columns)
    return match_entries(
        EntryKind.CHANGE,
        (
            PaletteEntry(
                f"Change {pk}: {title}",
                f"{prefix}/changes/{pk}/",
                note=state_label_of(state, has_started=started_at is not None),
                keywords=(str(pk), f"#{pk}", title),
            )
            for pk, title, state, started_at in found_rows
        ),
        query,
        limit,
    )


def _number_in(query: str) -> int | None:
    """Return the number of an object: `12`, `#12` or `incident 12`; None if the query has none."""
    text = query.rpartition(" ")[2].removeprefix("#")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
