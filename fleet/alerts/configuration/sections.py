"""Sections of the YAML document with their fields, and the objects in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.configuration.fields import (
    FieldSpec,
    channels_field,
    choice_field,
    count_field,
    day_field,
    duration_field,
    flag_field,
    secret_field,
    share_field,
    text_field,
    time_field,
)
from fleet.alerts.matchers import MAX_MATCHERS_LENGTH
from fleet.alerts.rules import (
    MAX_AGENT_SET_LENGTH,
    MAX_CLUSTER_LENGTH,
    MAX_RULE_NUMBER,
    MAX_RUNBOOK_LENGTH,
    RuleKind,
)
from fleet.vocabulary.incidents import Severity

#: Maximum length of a value of a channel, characters: a list of e-mail addresses.
_MAX_VALUE_LENGTH = 4_000
_SEVERITIES = {severity.slug: int(severity) for severity in Severity}
#: What leads to an object: cluster and name, and the number among those of the same name; for routes also its parents.
Key = tuple[tuple[str, str, int], ...]


class Section(StrEnum):
    """A section of the document; its key."""

    CHANNELS = "channels"
    ROUTES = "routes"
    RULES = "rules"
    WINDOWS = "maintenance_windows"

    @property
    def noun(self) -> str:
        """One object of the section."""
        return _NOUNS[self]


_NOUNS = {
    Section.CHANNELS: "channel",
    Section.ROUTES: "route",
    Section.RULES: "rule",
    Section.WINDOWS: "maintenance window",
}

_NAME = text_field("name", max_length=100, is_required=True)
_CLUSTER = text_field("cluster", max_length=MAX_CLUSTER_LENGTH)
_FIELDS: Mapping[Section, tuple[FieldSpec, ...]] = {
    Section.CHANNELS: (
        choice_field("kind", {slug: slug for slug in CHANNEL_KINDS}, is_required=True),
        flag_field("is_enabled", default=True),
        flag_field("send_resolved", default=True),
        choice_field("digest", {"daily": "daily", "weekly": "weekly", "never": ""}, default=""),
        count_field("per_minute", default=10),
        flag_field("allow_private", default=False),
    ),
    Section.ROUTES: (
        choice_field("min_severity", _SEVERITIES, default=int(Severity.CRITICAL)),
        text_field("matchers", max_length=MAX_MATCHERS_LENGTH),
        channels_field("channels"),
        flag_field("includes_parent_channels", default=False),
        duration_field("escalate_after", default=None),
        channels_field("escalate_to"),
        time_field("quiet_from"),
        time_field("quiet_until"),
        text_field("quiet_zone", max_length=64, default="UTC"),
        flag_field("continues", default=False),
    ),
    Section.RULES: (
        choice_field("kind", {kind.value: kind.value for kind in RuleKind}, is_required=True),
        choice_field("severity", _SEVERITIES, is_required=True),
        flag_field("is_enabled", default=True),
        count_field("min_count", default=1, maximum=MAX_RULE_NUMBER),
        share_field("min_share", default=0.0),
        text_field("agent_set", max_length=MAX_AGENT_SET_LENGTH),
        count_field("pending_polls", default=2, maximum=MAX_RULE_NUMBER),
        duration_field("pending_time", default=0.0),
        duration_field("resolve_after", default=300.0),
        duration_field("group_wait", default=30.0),
        duration_field("group_interval", default=300.0),
        duration_field("repeat_interval", default=4 * 3600.0),
        text_field("runbook", max_length=MAX_RUNBOOK_LENGTH),
    ),
    Section.WINDOWS: (
        text_field("matchers", max_length=MAX_MATCHERS_LENGTH),
        text_field("rule", max_length=200, is_required=True),
        day_field("first_day"),
        time_field("start_time", is_required=True),
        duration_field("duration", default=2 * 3600.0),
        text_field("time_zone", max_length=64, default="UTC"),
        text_field("reason", max_length=500, is_required=True),
        flag_field("is_enabled", default=True),
    ),
}  # fmt: skip
#: Fields of every object, and the key of child routes.
NAME_FIELDS = (_NAME, _CLUSTER)
CHILD_ROUTES = "routes"
#: Place among the siblings of a route: the order of the list has it, so no document has this field.
POSITION = count_field("position", default=0)


def fields_of(section: Section, kind: str = "") -> dict[str, FieldSpec]:
    """Return the fields of an object by name, without name and cluster. `kind`: of a channel."""
    specs = _FIELDS[section]
    if section is Section.CHANNELS and kind in CHANNEL_KINDS:
        specs += tuple(
            secret_field(channel_field.key, max_length=_MAX_VALUE_LENGTH)
            if channel_field.is_secret
            else text_field(channel_field.key, max_length=_MAX_VALUE_LENGTH)
            for channel_field in CHANNEL_KINDS[kind].fields
        )
    return {spec.name: spec for spec in specs}


@dataclass(frozen=True, slots=True)
class Setting:
    """An object of the configuration: stored, or in a document."""

    section: Section
    key: Key
    #: Values by field; in a document only those that it has.
    values: Mapping[str, Any]
    #: Keys and list positions that lead to the object in its document.
    path: tuple[str | int, ...] = ()
    #: Primary key of a stored object; 0 in a document.
    number: int = 0
    #: A stored object that an import never removes, such as a built-in rule.
    is_kept: bool = False

    @property
    def cluster(self) -> str:
        """The cluster that owns the object; empty: the whole installation."""
        return self.key[-1][0]

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.key[-1][1]

    @property
    def label(self) -> str:
        """The name with those of its parents."""
        return " > ".join(name for _, name, _ in self.key)

    @property
    def specs(self) -> dict[str, FieldSpec]:
        """The fields of the object by name."""
        return fields_of(self.section, str(self.values.get("kind", "")))


@dataclass(frozen=True, slots=True)
class Configuration:
    """Objects by section, in order; a section that is not there is not part of the configuration."""

    settings: Mapping[Section, tuple[Setting, ...]] = field(default_factory=dict)

    def by_key(self, section: Section) -> dict[Key, Setting]:
        """Return the objects of a section by key."""
        return {setting.key: setting for setting in self.settings.get(section, ())}


def number_keys(names: Iterable[tuple[str, str]], parent: Key = ()) -> list[Key]:
    """Return the keys of siblings: each with its number among those of the same cluster and name."""
    counts: dict[tuple[str, str], int] = {}
    keys: list[Key] = []
    for cluster, name in names:
        number = counts.get((cluster, name), 0)
        counts[cluster, name] = number + 1
        keys.append((*parent, (cluster, name, number)))
    return keys
