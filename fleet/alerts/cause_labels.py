"""Names of the causes in matchers: `cause=proxy/<id>` names an instance by its id, which people never see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fleet.alerts.matchers import Matcher, escape_name, format_matchers, unescape_name
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.vocabulary.incidents import Cause, CauseKind

#: The key of a cause: its kind and its id.
_KEY_PATTERN = re.compile(rf"(?:{'|'.join(CauseKind)})/[^*?]+")


def read_cause_names(matcher_lists: Iterable[Iterable[Matcher]], cluster: str) -> dict[str, str]:
    """Return the names of the causes whose keys matchers contain, by key. `cluster` empty: of any cluster."""
    keys = {
        unescape_name(pattern)
        for matchers in matcher_lists
        for matcher in matchers
        if matcher.field == "cause"
        for pattern in matcher.patterns
        if _KEY_PATTERN.fullmatch(pattern)
    }
    if not keys:
        return {}
    ids = {key.partition("/")[2] for key in keys}
    instances = Instance.objects.filter(instance_id__in=ids)
    incidents = Incident.objects.filter(key__in=keys)
    if cluster:
        instances, incidents = instances.filter(cluster=cluster), incidents.filter(cluster=cluster)
    rows = instances.values_list("kind", "instance_id", "name")
    names = {f"{kind}/{instance_id}": name for kind, instance_id, name in rows}
    names |= dict(incidents.order_by("pk").values_list("key", "cause_name"))
    return {key: names[key] for key in keys if names.get(key)}


def name_causes(matchers: Iterable[Matcher], cause_names: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return matchers with the names of causes instead of their keys, as far as names are known."""
    return tuple(
        replace(matcher, value="|".join(_name_pattern(pattern, cause_names) for pattern in matcher.patterns))
        if matcher.field == "cause"
        else matcher
        for matcher in matchers
    )


def format_named_matchers(matchers: tuple[Matcher, ...], cluster: str) -> str:
    """Return the text of matchers with the names of causes; `everything` without matchers."""
    return format_matchers(name_causes(matchers, read_cause_names([matchers], cluster))) or "everything"


def describe_cause_key(key: str, cause_name: str) -> str:
    """Return the name of a cause with its kind: `proxy web-1`, `region eu-west`."""
    kind, _, cause_id = key.partition("/")
    return Cause(CauseKind(kind), cause_id, cause_name).label if kind in set(CauseKind) else cause_name


def _name_pattern(pattern: str, cause_names: Mapping[str, str]) -> str:
    cause_name = cause_names.get(unescape_name(pattern))
    return pattern if cause_name is None else escape_name(cause_name)
