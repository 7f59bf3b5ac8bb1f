"""Columns of the list of agents: which are shown, by address, by cookie, or by what the product of the cluster reports.

Name and state are always shown. The downloads have the same columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from django.http import HttpRequest

from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.capabilities import Capability

#: In an address, `?columns=reason,version`; the cookie has the same text. One value may also be one column.
PARAMETER = "columns"
#: A browser's choice for all clusters; without it, each cluster shows what its product reports.
COOKIE = "refloat_agent_columns"
COOKIE_SECONDS = 400 * 86_400
#: Sent by the form of the menu: its columns are kept.
KEEP_PARAMETER = "keep_columns"


@dataclass(frozen=True, slots=True)
class AgentColumn:
    """A column that may be hidden."""

    slug: str
    #: Its head.
    label: str
    #: Columns of the downloads that belong to it.
    export_names: tuple[str, ...]


_ALWAYS_EXPORTED = ("id", "name", "state")
COLUMNS = (
    AgentColumn("reason", "Reason", ("reason", "explanation", "cause")),
    AgentColumn("since", "Since", ("since",)),
    AgentColumn("recovery", "Recovery", ("recovery", "recovers_at")),
    AgentColumn("auth", "Auth", ("auth",)),
    AgentColumn("mode", "Reconnect mode", ("mode", "health_check", "policy_read_at")),
    AgentColumn("tunnels", "Tunnels to", ("proxies", "groups", "generations")),
    AgentColumn("version", "Version", ("version",)),
    AgentColumn("labels", "Labels", ("labels",)),
)
_SLUGS = frozenset(column.slug for column in COLUMNS)
_NO_REPORTS = "No agent of this cluster reports it."


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns of one page."""

    shown_slugs: frozenset[str]
    #: Why a column is hidden unless it is chosen, by slug, as a sentence.
    reasons: Mapping[str, str]
    #: Chosen in the address or by cookie.
    is_chosen: bool

    @property
    def text(self) -> str:
        """Return the shown columns as the text of one `?columns=`; `none` without any."""
        return ",".join(column.slug for column in COLUMNS if column.slug in self.shown_slugs) or "none"

    @property
    def export_names(self) -> tuple[str, ...]:
        """Return the columns of a download."""
        names = (
            name for column in COLUMNS if column.slug in self.shown_slugs for name in column.export_names
        )
        return (*_ALWAYS_EXPORTED, *names)


def choose_columns(
    request: HttpRequest, table: FleetTable, missing_capabilities: Mapping[Capability, str]
) -> ColumnChoice:
    """Return the columns of a page: those of the address, or of the cookie, or all that agents report."""
    reasons = find_empty_columns(table, missing_capabilities)
    for texts in (request.GET.getlist(PARAMETER), [request.COOKIES.get(COOKIE, "")]):
        slugs = {slug for text in texts for slug in text.split(",") if slug}
        if slugs:
            return ColumnChoice(frozenset(slugs & _SLUGS), reasons, is_chosen=True)
    return ColumnChoice(_SLUGS - frozenset(reasons), reasons, is_chosen=False)


def find_empty_columns(table: FleetTable, missing_capabilities: Mapping[Capability, str]) -> dict[str, str]:
    """Return the columns for which there is no evidence, each with the reason; none while there are no agents."""
    if not len(table.ids):
        return {}
    has_values: Mapping[str, bool] = {
        "auth": bool(np.any(table.memory["last_auth"] != NO_INSTANCE)),
        "mode": bool(np.any(table.heartbeats["mode"] != ReconnectMode.UNKNOWN)),
        "tunnels": bool(len(table.tunnel_agents) or np.any(table.memory["last_proxies"] != NO_INSTANCE)),
        "version": _has_any(table.attributes.version_numbers(len(table.ids)), table.attributes.versions),
        "labels": _has_any(table.attributes.label_set_numbers(len(table.ids)), table.attributes.label_sets),
    }
    capabilities = {"auth": Capability.AGENT_TO_AUTH, "tunnels": Capability.TUNNELS_BY_AGENT}
    return {
        slug: missing_capabilities.get(capabilities[slug], _NO_REPORTS)
        if slug in capabilities
        else _NO_REPORTS
        for slug, has_value in has_values.items()
        if not has_value
    }


def _has_any(numbers: np.ndarray, entries: Collection[object]) -> bool:
    """Return whether an agent has an entry that is not empty."""
    filled = np.fromiter(map(bool, entries), np.bool_, len(entries))
    return bool(np.any(filled[numbers]))
