"""Whom a reconnect campaign is about: by filter, by proxy, or by a list, as somebody wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from dashboards.fleet import agent_query
from dashboards.fleet.agent_query import QueryError
from fleet.changes import Refused
from fleet.changes.campaigns.campaigns import Chosen
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.campaigns import Connection
from fleet.vocabulary.instances import InstanceKind

#: Names or ids in a list, at most.
_MOST = 100_000


def chosen(table: FleetTable, given: Mapping[str, str]) -> Chosen:
    """Read `q` (filter of *Agents*), `proxy` or `auth` (a name or id), `agents` (names or ids), at least one of them.

    `connection` is what moves: "tunnel", or "auth", which is the default where `auth` is given. Raises Refused with
    problems by field.
    """
    query, proxy, auth, listed = (given.get(name, "").strip() for name in ("q", "proxy", "auth", "agents"))
    connection = _connection(given.get("connection", "").strip(), proxy, auth)
    if not (query or proxy or auth or listed):
        raise _refused("q", "choose agents: by a filter, a proxy, an auth or a list")
    mask = np.ones(len(table.ids), np.bool_)
    words: list[str] = []
    leave: tuple[str, ...] = ()
    if query:
        try:
            found = agent_query.select(table, agent_query.parse(query))
        except QueryError as error:
            raise _refused("q", str(error)) from None
        mask &= np.isin(np.arange(len(table.ids)), found)
        words.append(query)
    if proxy:
        index, identity, name = _instance(table, InstanceKind.PROXY, proxy)
        here = np.zeros(len(table.ids), np.bool_)
        here[table.tunnel_agents[table.tunnel_proxies == index]] = True
        mask &= here
        leave = (identity,)
        words.append(f"off {name}")
    if auth:
        index, identity, name = _instance(table, InstanceKind.AUTH, auth)
        mask &= table.memory["last_auth"] == index
        leave = (identity,)
        words.append(f"off {name}")
    if listed:
        mask &= _listed(table, listed)
        words.append("a list")
    return Chosen(np.flatnonzero(mask), ", ".join(words)[:150], leave, connection)


def _connection(text: str, proxy: str, auth: str) -> Connection:
    """Return what moves: a proxy is left by its tunnels, an auth by its auth connections."""
    if text not in ("", *Connection):
        problem = "choose tunnel or auth"
        raise Refused(f"connection: {problem}", {"connection": problem})
    connection = Connection(text) if text else Connection.AUTH if auth else Connection.TUNNEL
    if auth and connection is Connection.TUNNEL:
        raise _refused(
            "auth", "agents leave an auth by their auth connections: move these, or choose no auth"
        )
    if proxy and connection is Connection.AUTH:
        raise _refused("proxy", "agents leave a proxy by their tunnels: move these, or choose no proxy")
    return connection


def _instance(table: FleetTable, kind: InstanceKind, text: str) -> tuple[int, str, str]:
    for index, view in table.instances.items():
        facts = view.facts
        if facts.kind is kind and text in (facts.id, facts.name):
            return index, facts.id, facts.name
    raise _refused(str(kind), f"there is no {kind} {text!r}")


def _listed(table: FleetTable, text: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    wanted = set(re.split(r"[\s,;]+", text)) - {""}
    if len(wanted) > _MOST:
        raise Refused("the list is too long", {"agents": f"at most {_MOST:,} names or ids"})
    mask = np.zeros(len(table.ids), np.bool_)
    missing = set(wanted)
    for index, pair in enumerate(zip(table.ids, table.names, strict=True)):
        met = wanted.intersection(pair)
        if met:
            mask[index] = True
            missing -= met
    if missing:
        few = ", ".join(sorted(missing)[:5])
        raise Refused(
            "unknown agents", {"agents": f"unknown: {few}{' and more' if len(missing) > 5 else ''}"}
        )
    return mask


def _refused(field: str, problem: str) -> Refused:
    return Refused(problem, {field: problem})
