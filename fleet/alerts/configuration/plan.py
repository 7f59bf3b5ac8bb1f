"""The plan of an import: what it adds, changes and removes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.configuration.document import ConfigurationError, Document, DocumentProblem
from fleet.alerts.configuration.fields import (
    ChannelReference,
    FieldSpec,
    Secret,
    SecretReference,
    placeholder_of,
    quote,
)
from fleet.alerts.configuration.sections import POSITION, Configuration, Key, Section, Setting

#: A position after all stored rows with the same position: new rows have larger primary keys.
_AFTER_ALL = 1 << 62
_CHANNEL_FIELDS = ("channels", "escalate_to")


class ChangeAction(StrEnum):
    """What an import does with an object."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that an import changes, in words; `before` is empty for a new object."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """An object that an import adds, changes or removes."""

    action: ChangeAction
    #: The object in the document; of a removal, the stored one.
    setting: Setting
    #: New values by field: all of a new object, those that differ of another.
    values: Mapping[str, Any]
    fields: tuple[FieldChange, ...] = ()
    #: Primary key of the stored object; 0 for a new one.
    number: int = 0


def make_plan(
    current: Configuration, document: Document, variables: Mapping[str, str], *, should_prune: bool
) -> tuple[SettingChange, ...]:
    """Return the changes of an import in the order in which they are applied. Raises ConfigurationError.

    `variables`: values of the variables that the document refers to. `should_prune`: remove the objects that are not in
    the document from its sections.
    """
    changes, problems = draft_plan(current, document, variables, should_prune=should_prune)
    if problems:
        raise ConfigurationError(problems)
    return changes


def draft_plan(
    current: Configuration, document: Document, variables: Mapping[str, str], *, should_prune: bool
) -> tuple[tuple[SettingChange, ...], list[DocumentProblem]]:
    """Return the changes as `make_plan`, and all problems; the change of an object with a problem is incomplete."""
    desired_configuration = document.configuration
    problems = list(document.problems)
    changes: list[SettingChange] = []
    channels = _channels_after(current, desired_configuration, should_prune=should_prune)
    positions = _find_positions(current, desired_configuration)
    for section in desired_configuration.settings:
        stored_settings = current.by_key(section)
        for setting in desired_configuration.settings[section]:
            stored = stored_settings.get(setting.key)
            values = dict(setting.values)
            if section is Section.CHANNELS:
                problems += _resolve_secrets(document, setting, stored, values, variables)
            if section is Section.ROUTES:
                problems += _resolve_channels(document, setting, values, channels)
                values["position"] = positions[setting.key]
            if stored is None:
                problems += _find_missing_fields(document, setting)
                changes.append(_make_addition(setting, values))
            elif section is Section.CHANNELS and values.get("kind") != stored.values["kind"]:
                text = f"channel {quote(setting.name)} is of the kind {stored.values['kind']}, which cannot be changed"
                if "kind" in values:  # else the document has a problem already
                    problems.append(document.make_problem(setting, text, "kind"))
            elif change := _make_change(setting, stored, values):
                changes.append(change)
    removals = _make_removals(current, desired_configuration) if should_prune else []
    return (*changes, *removals), problems


def can_be_tried(change: SettingChange, document: Document, problems: Iterable[DocumentProblem]) -> bool:
    """Return whether no problem is about the object of a change, a route above it, or a channel that it uses.

    False for removals: an object with a wrong name looks like one that the document lacks.
    """
    if change.action is ChangeAction.REMOVE:
        return False
    wrong_paths = {problem.object_path for problem in problems}
    path = change.setting.path
    if any(path[:length] in wrong_paths for length in range(1, len(path) + 1)):
        return False
    wrong_channels = {
        setting.key[-1][:2]
        for setting in document.configuration.settings.get(Section.CHANNELS, ())
        if setting.path in wrong_paths
    }
    references = [reference for name in _CHANNEL_FIELDS for reference in change.values.get(name, ())]
    return not any((reference.cluster, reference.name) in wrong_channels for reference in references)


def resolve_reference(
    reference: ChannelReference, cluster: str, channels: Collection[tuple[str, str]]
) -> ChannelReference | None:
    """Return a reference with the cluster of its channel: the route's own comes first; None for an unknown channel.

    `channels`: cluster and name of each channel.
    """
    clusters = (cluster, "") if reference.cluster is None else (reference.cluster,)
    return next(
        (
            ChannelReference(reference.name, owner)
            for owner in clusters
            if (owner, reference.name) in channels
        ),
        None,
    )


def shorten_reference(
    reference: ChannelReference, cluster: str, channels: Collection[tuple[str, str]]
) -> ChannelReference:
    """Return a reference without a cluster where the name alone has the same meaning for a route of `cluster`."""
    short_reference = ChannelReference(reference.name)
    is_same = resolve_reference(short_reference, cluster, channels) == reference
    return short_reference if is_same else reference


def _channels_after(
    current: Configuration, desired_configuration: Configuration, *, should_prune: bool
) -> set[tuple[str, str]]:
    """Return cluster and name of the channels after the import."""
    is_pruned = should_prune and Section.CHANNELS in desired_configuration.settings
    stored_settings = current.settings.get(Section.CHANNELS, ())
    kept_settings = [setting for setting in stored_settings if setting.is_kept or not is_pruned]
    return {
        setting.key[-1][:2]
        for setting in (*kept_settings, *desired_configuration.settings.get(Section.CHANNELS, ()))
    }


def _resolve_secrets(
    document: Document,
    setting: Setting,
    stored: Setting | None,
    values: dict[str, Any],
    variables: Mapping[str, str],
) -> Iterable[DocumentProblem]:
    """Replace references by secrets; one that keeps the stored secret is dropped."""
    for name, value in list(values.items()):
        if not isinstance(value, SecretReference):
            continue
        variable = value.variable
        if variables.get(variable):
            values[name] = Secret(variables[variable])
            continue
        del values[name]
        if value != placeholder_of(setting.cluster, setting.name, name):
            yield document.make_problem(
                setting,
                f"{name}: the variable {variable} is not set. Set it for `refloat alerting import`, or write the value",
                name,
            )
        elif stored is None or name not in stored.values:
            yield document.make_problem(
                setting,
                f"{name}: no secret is stored for channel {quote(setting.name)}. Set the variable {variable} for "
                "`refloat alerting import`, or write the value",
                name,
            )


def _resolve_channels(
    document: Document, setting: Setting, values: dict[str, Any], channels: Collection[tuple[str, str]]
) -> Iterable[DocumentProblem]:
    """Replace the channels of a route by references with their clusters."""
    for name in _CHANNEL_FIELDS:
        references = []
        for reference in values.get(name, ()):
            resolved_reference = resolve_reference(reference, setting.cluster, channels)
            if resolved_reference is None:
                names = sorted({channel for owner, channel in channels if owner in ("", setting.cluster)})
                known_names = f"Known channels: {', '.join(names[:20])}" if names else "There are no channels"
                yield document.make_problem(
                    setting, f"{name}: unknown channel {quote(reference.name)}. {known_names}", name
                )
            else:
                references.append(resolved_reference)
        if name in values:
            values[name] = tuple(
                sorted(references, key=lambda channel: (channel.name, channel.cluster or ""))
            )


def _find_missing_fields(document: Document, setting: Setting) -> Iterable[DocumentProblem]:
    for name, spec in setting.specs.items():
        # A value that is wrong is not in `values`, but its field has a line. Each channel needs a kind, new or not.
        is_missing = name not in setting.values and (*setting.path, name) not in document.lines
        if spec.is_required and is_missing and (setting.section is not Section.CHANNELS or name != "kind"):
            yield document.make_problem(setting, f"the {name} of a new {setting.section.noun} is missing")


def _make_addition(setting: Setting, values: Mapping[str, Any]) -> SettingChange:
    defaults: dict[str, Any] = {}
    for name, spec in setting.specs.items():
        if not spec.is_required and spec.default is not None:
            defaults[name] = spec.default
    if setting.section is Section.CHANNELS and "digest" not in values:
        kind = CHANNEL_KINDS.get(str(values.get("kind")))
        defaults["digest"] = "weekly" if kind is not None and kind.is_read_by_people else ""
        # Values of the kind have no default: an empty one is not stored.
    kind_keys = _kind_keys_of(setting)
    all_values = {name: value for name, value in defaults.items() if name not in kind_keys} | dict(values)
    fields = tuple(
        FieldChange(name, "", spec.describe(values[name]))
        for name, spec in setting.specs.items()
        if name in values
    )
    return SettingChange(ChangeAction.ADD, setting, all_values, fields)


def _kind_keys_of(setting: Setting) -> set[str]:
    if setting.section is not Section.CHANNELS:
        return set()
    kind = CHANNEL_KINDS.get(str(setting.values.get("kind")))
    return set() if kind is None else {channel_field.key for channel_field in kind.fields}


def _make_change(setting: Setting, stored: Setting, values: Mapping[str, Any]) -> SettingChange | None:
    """Return the change of a stored object; None if nothing differs."""
    specs = stored.specs | ({"position": POSITION} if setting.section is Section.ROUTES else {})
    new_values = {
        name: value
        for name, value in values.items()
        if not _is_same(specs[name], value, stored.values.get(name, specs[name].default or ""))
    }
    if not new_values:
        return None
    fields = []
    for name, value in new_values.items():
        before = specs[name].describe(stored.values[name]) if name in stored.values else "none"
        after = "new value" if isinstance(value, Secret) else specs[name].describe(value)
        fields.append(FieldChange(name, before, after))
    return SettingChange(ChangeAction.CHANGE, setting, new_values, tuple(fields), stored.number)


def _is_same(spec: FieldSpec, value: Any, stored_value: Any) -> bool:
    """Return whether two values of a field are the same in a document; secrets are compared themselves."""
    if value == stored_value or isinstance(value, Secret):
        return bool(value == stored_value)
    return bool(spec.format(value) == spec.format(stored_value))


def _make_removals(current: Configuration, desired_configuration: Configuration) -> list[SettingChange]:
    """Return the removals: routes first, each after those below it."""
    removals = []
    for section in sorted(desired_configuration.settings, key=lambda section: section is not Section.ROUTES):
        keys = set(desired_configuration.by_key(section))
        stored_settings = current.settings.get(section, ())
        removals += [
            SettingChange(ChangeAction.REMOVE, stored, {}, number=stored.number)
            for stored in reversed(stored_settings)
            if stored.key not in keys and not stored.is_kept
        ]
    return removals


def _find_positions(current: Configuration, desired_configuration: Configuration) -> dict[Key, int]:
    """Return the position of each route of the document: the stored one wherever the order of the list allows it."""
    stored_settings = current.by_key(Section.ROUTES)
    siblings: dict[Key, list[Setting]] = {}
    for setting in desired_configuration.settings.get(Section.ROUTES, ()):
        siblings.setdefault(setting.key[:-1], []).append(setting)
    positions: dict[Key, int] = {}
    for routes in siblings.values():
        positions |= _order_siblings(routes, stored_settings)
    return positions


def _order_siblings(routes: Sequence[Setting], stored_settings: Mapping[Key, Setting]) -> dict[Key, int]:
    positions = {}
    previous = (0, 0)
    for setting_index, setting in enumerate(routes):
        stored = stored_settings.get(setting.key)
        # Routes with the same position are tried in the order in which they were created.
        number = _AFTER_ALL + setting_index if stored is None else stored.number
        position = 0 if stored is None else int(stored.values["position"])
        if (position, number) <= previous:
            position = previous[0] if number > previous[1] else previous[0] + 1
        positions[setting.key] = position
        previous = (position, number)
    return positions
