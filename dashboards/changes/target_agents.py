"""Selects the target agents of a reconnect campaign: by filter, proxy, auth, or list."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from dashboards.fleet import agent_query
from dashboards.fleet.agent_query import QueryError
from fleet.changes import ChangeRefusedError
from fleet.changes.campaigns.forecast import TargetAgents
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.instances import InstanceKind

#: Largest number of names or ids in a list.
_MAX_NAMES = 100_000


def select_campaign_targets(table: FleetTable, filters: Mapping[str, str]) -> TargetAgents:
    """Return the agents that match `q` (filter of *Agents*), `proxy` or `auth` (name or id), `agents` (names or ids).

    At least one of them is required. `connection`, "tunnel" or "auth", is what moves; "auth" is the default where
    `auth` is given. Raises ChangeRefusedError with problems by field.
    """
    query, proxy, auth, agent_list_text = (
        filters.get(name, "").strip() for name in ("q", "proxy", "auth", "agents")
    )
    connection = _parse_connection_kind(filters.get("connection", "").strip(), proxy, auth)
    if not (query or proxy or auth or agent_list_text):
        raise _create_field_error(
            "q", "select target agents by a filter, a proxy, an auth or a list of agents"
        )
    mask = np.ones(len(table.ids), np.bool_)
    description_parts: list[str] = []
    instances_to_leave: tuple[str, ...] = ()
    if query:
        try:
            matching_indices = agent_query.select(table, agent_query.parse(query))
        except QueryError as error:
            raise _create_field_error("q", str(error).removesuffix(".")) from None
        mask &= np.isin(np.arange(len(table.ids)), matching_indices)
        description_parts.append(f"matching {query}")
    if proxy:
        index, instance_id, name = _find_instance(table, InstanceKind.PROXY, proxy)
        proxy_mask = np.zeros(len(table.ids), np.bool_)
        proxy_mask[table.tunnel_agents[table.tunnel_proxies == index]] = True
        mask &= proxy_mask
        instances_to_leave = (instance_id,)
        description_parts.append(f"with a tunnel to {name}")
    if auth:
        index, instance_id, name = _find_instance(table, InstanceKind.AUTH, auth)
        mask &= table.memory["last_auth"] == index
        instances_to_leave = (instance_id,)
        description_parts.append(f"connected to {name}")
    if agent_list_text:
        mask &= _mask_by_list(table, agent_list_text)
        description_parts.append("from a list")
    return TargetAgents(
        np.flatnonzero(mask), ", ".join(description_parts)[:150], instances_to_leave, connection
    )


def _parse_connection_kind(text: str, proxy: str, auth: str) -> ConnectionKind:
    """Return the connection that moves. Agents leave a proxy by their tunnels, an auth by their auth connections."""
    if text not in ("", *ConnectionKind):
        problem = "choose tunnel or auth"
        raise ChangeRefusedError(f"connection: {problem}", {"connection": problem})
    if proxy and auth:
        raise _create_field_error(
            "auth",
            "a proxy and an auth cannot be selected together: a campaign moves either tunnels (select a proxy) or auth "
            "connections (select an auth)",
        )
    connection = ConnectionKind(text) if text else ConnectionKind.AUTH if auth else ConnectionKind.TUNNEL
    if auth and connection is ConnectionKind.TUNNEL:
        raise _create_field_error(
            "auth",
            "you selected an auth, and tunnels as the connection to move. Select auth connections instead, or a proxy",
        )
    if proxy and connection is ConnectionKind.AUTH:
        raise _create_field_error(
            "proxy",
            "you selected a proxy, and auth connections as the connection to move. Select tunnels instead, or an auth",
        )
    return connection


def _find_instance(table: FleetTable, kind: InstanceKind, text: str) -> tuple[int, str, str]:
    for index, view in table.instances.items():
        facts = view.facts
        if facts.kind is kind and text in (facts.id, facts.name):
            return index, facts.id, facts.name
    raise _create_field_error(str(kind), f"{kind} {text!r} was not found")


def _mask_by_list(table: FleetTable, list_text: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    names_or_ids = set(re.split(r"[\s,;]+", list_text)) - {""}
    if len(names_or_ids) > _MAX_NAMES:
        raise ChangeRefusedError(
            f"the list has more than {_MAX_NAMES:,} agents",
            {"agents": f"enter at most {_MAX_NAMES:,} names or ids"},
        )
    mask = np.zeros(len(table.ids), np.bool_)
    unknown_names = set(names_or_ids)
    for index, pair in enumerate(zip(table.ids, table.names, strict=True)):
        matched_names = names_or_ids.intersection(pair)
        if matched_names:
            mask[index] = True
            unknown_names -= matched_names
    if unknown_names:
        first_unknown_names = ", ".join(sorted(unknown_names)[:5])
        raise ChangeRefusedError(
            "some agents of the list were not found",
            {
                "agents": (
                    "not found: "
                    f"{first_unknown_names}{f' and {len(unknown_names) - 5:,} more' if len(unknown_names) > 5 else ''}"
                )
            },
        )
    return mask


def _create_field_error(field: str, problem: str) -> ChangeRefusedError:
    return ChangeRefusedError(problem, {field: problem})
