"""Reading the stored configuration of alerting, and its export.

docs/reference/alerts.md, "Configuration as YAML".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.configuration import document as documents
from fleet.alerts.configuration.fields import ChannelReference, Secret
from fleet.alerts.configuration.plan import shorten_reference
from fleet.alerts.configuration.sections import Configuration, Key, Section, Setting, fields_of, number_keys
from fleet.alerts.setup.channels import unseal_or_empty
from fleet.models.alerting import AlertRule, Channel, MaintenanceWindow, Route, filter_applicable_to

#: Columns of rows by field of the document, where the names differ.
COLUMN_OF_FIELD: Mapping[Section, Mapping[str, str]] = {
    Section.CHANNELS: {"is_enabled": "enabled"},
    Section.ROUTES: {"continues": "continue_matching"},
    Section.RULES: {
        "is_enabled": "enabled", "pending_polls": "pending_rounds", "pending_time": "pending_seconds",
        "resolve_after": "recover_seconds", "repeat_interval": "repeat_seconds",
    },
    Section.WINDOWS: {"is_enabled": "enabled"},
}  # fmt: skip
#: Fields of routes with channels.
ROUTE_CHANNEL_FIELDS = ("channels", "escalate_to")


def export_configuration(cluster: str, readable_channel_owners: Collection[str]) -> str:
    """Return the objects of a cluster and of the installation as YAML, without secrets.

    `readable_channel_owners`: owners of the channels that the document contains, since it has their addresses.
    """
    configuration = read_configuration(cluster)
    channels = {key[-1][:2] for key in configuration.by_key(Section.CHANNELS)}
    settings = dict(configuration.settings)
    settings[Section.CHANNELS] = tuple(
        setting for setting in settings[Section.CHANNELS] if setting.cluster in readable_channel_owners
    )
    settings[Section.ROUTES] = tuple(
        _shorten_references(setting, channels) for setting in settings[Section.ROUTES]
    )
    return documents.dump(Configuration(settings), f"cluster {cluster}")


def read_configuration(cluster: str, writable_owners: Collection[str] = ()) -> Configuration:
    """Return the stored objects of a cluster and of the installation; routes each before its child routes."""

    def make_settings(section: Section, rows: Iterable[Any]) -> tuple[Setting, ...]:
        rows = list(rows)
        keys = number_keys((row.cluster, row.name) for row in rows)
        return tuple(
            _setting_of(section, key, row, cluster, writable_owners)
            for key, row in zip(keys, rows, strict=True)
        )

    return Configuration(
        {
            Section.CHANNELS: make_settings(
                Section.CHANNELS, filter_applicable_to(Channel.objects.order_by("name", "cluster"), cluster)
            ),
            Section.ROUTES: tuple(_read_routes(cluster, writable_owners)),
            Section.RULES: make_settings(
                Section.RULES, filter_applicable_to(AlertRule.objects.order_by("-severity", "name"), cluster)
            ),
            Section.WINDOWS: make_settings(
                Section.WINDOWS,
                filter_applicable_to(MaintenanceWindow.objects.order_by("name", "pk"), cluster),
            ),
        }
    )


def _read_routes(cluster: str, writable_owners: Collection[str]) -> Iterable[Setting]:
    """Yield the routes, each before its child routes."""
    children: dict[int | None, list[Route]] = {}
    rows = Route.objects.prefetch_related("channels", "escalate_to").order_by("position", "pk")
    for row in filter_applicable_to(rows, cluster):
        children.setdefault(row.parent_id, []).append(row)

    def walk(parent: int | None, parent_key: Key) -> Iterable[Setting]:
        siblings = children.get(parent, [])
        keys = number_keys(((row.cluster, row.name) for row in siblings), parent_key)
        for row, key in zip(siblings, keys, strict=True):
            yield _setting_of(Section.ROUTES, key, row, cluster, writable_owners)
            yield from walk(row.pk, key)

    return walk(None, ())


def _kind_values_of(row: Channel) -> dict[str, Any]:
    """Return the stored values of the kind of a channel by field."""
    kind = CHANNEL_KINDS.get(row.kind)
    stored_secrets = unseal_or_empty(row.secrets)
    values: dict[str, Any] = {}
    for field in kind.fields if kind is not None else ():
        if field.is_secret and field.key in stored_secrets:
            values[field.key] = Secret(stored_secrets[field.key])
        elif not field.is_secret and field.key in row.config:
            values[field.key] = row.config[field.key]
    return values


def _shorten_references(setting: Setting, channels: Collection[tuple[str, str]]) -> Setting:
    """Return a route whose channels have no cluster where their name alone has the same meaning."""
    short_references = {
        name: tuple(
            shorten_reference(reference, setting.cluster, channels) for reference in setting.values[name]
        )
        for name in ROUTE_CHANNEL_FIELDS
    }
    return replace(setting, values=dict(setting.values) | short_references)


def _setting_of(
    section: Section, key: Key, row: Any, cluster: str, writable_owners: Collection[str]
) -> Setting:
    is_kept = row.cluster not in writable_owners or (section is Section.RULES and row.builtin)
    values: dict[str, Any] = {"kind": row.kind} if section in (Section.CHANNELS, Section.RULES) else {}
    columns = COLUMN_OF_FIELD[section]
    for name in fields_of(section):
        column = columns.get(name, name)
        if section is Section.ROUTES and name in ROUTE_CHANNEL_FIELDS:
            values[name] = tuple(
                sorted(
                    (
                        ChannelReference(channel.name, channel.cluster)
                        for channel in getattr(row, name).all()
                        if channel.cluster in ("", cluster)
                    ),
                    key=lambda reference: (reference.name, reference.cluster or ""),
                )
            )
        elif hasattr(row, column):
            values[name] = getattr(row, column)
    if section is Section.CHANNELS:
        values |= _kind_values_of(row)
    elif section is Section.ROUTES:
        values["position"] = row.position
    elif section is Section.WINDOWS:
        values["duration"] = row.length.total_seconds()
    return Setting(section, key, values, number=row.pk, is_kept=is_kept)
