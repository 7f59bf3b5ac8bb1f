"""Import of the configuration of alerting: its plan, and applying it in one transaction.

docs/reference/alerts.md, "Configuration as YAML".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from fleet.alerts import incident_actions, setup_actions
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.configuration import document as documents
from fleet.alerts.configuration.document import ConfigurationError, Document, DocumentProblem
from fleet.alerts.configuration.fields import Secret
from fleet.alerts.configuration.plan import (
    ChangeAction,
    FieldChange,
    SettingChange,
    can_be_tried,
    draft_plan,
    make_plan,
)
from fleet.alerts.configuration.sections import Key, Section, Setting
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.matchers import CONFIRMATION_WORD, MatcherError, matches_everything, parse_matchers
from fleet.alerts.setup import windows
from fleet.alerts.setup.channels import save_channel
from fleet.alerts.setup.problems import SetupChangedError, SetupError
from fleet.alerts.setup.routes import descendant_rows_of, save_route
from fleet.alerts.setup.rules import save_rule
from fleet.alerts.setup.stored_configuration import (
    COLUMN_OF_FIELD,
    ROUTE_CHANNEL_FIELDS,
    read_configuration,
)
from fleet.audit import RequestActor, collect_audit_entry_ids, record_outcome
from fleet.models.alerting import AlertRule, Channel, MaintenanceWindow, Route
from fleet.vocabulary.actions import AuditAction


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A document to import, and what its author may do."""

    #: Cluster whose objects the document may have, besides those of the installation.
    cluster: str
    text: str
    #: Values of the variables that the document refers to.
    variables: Mapping[str, str]
    should_prune: bool
    #: Owners whose objects the author may change.
    writable_owners: Collection[str]
    can_allow_private: bool
    actor: RequestActor
    creator: str
    now: float
    #: The word that confirms a maintenance window that silences everything.
    typed_word: str = ""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import would do."""

    changes: tuple[SettingChange, ...]
    #: Text that differs when the configuration or the document differs.
    fingerprint: str
    #: A maintenance window would silence everything: the import needs the confirmation.
    is_confirmation_required: bool


class _TrialRolledBackError(Exception):
    """The changes of a trial are undone."""


def plan_import(request: ImportRequest) -> ImportPlan:
    """Return what an import would do. Raises ConfigurationError.

    The changes are tried in a transaction that is rolled back, so that what can be applied is what was planned.
    """
    document = documents.read(request.text)
    plan, problems = _make_import_plan(request, document)
    try:
        # The audit log entries are rolled back, too: the request must not count them.
        with collect_audit_entry_ids(), transaction.atomic():
            _apply_changes(replace(request, typed_word=CONFIRMATION_WORD), document, plan.changes, problems)
            _require_result(request, document)
            raise _TrialRolledBackError
    except _TrialRolledBackError:
        return plan


def apply_import(request: ImportRequest, fingerprint: str) -> ImportPlan:
    """Apply a plan in one transaction, and return it. Raises ConfigurationError, SetupChangedError.

    `fingerprint`: that of the plan. SetupChangedError if the configuration or the document differs since.
    """
    document = documents.read(request.text)
    attempt = request.actor.create_attempt(
        AuditAction.ALERTING_IMPORT, request.cluster, "alerting configuration"
    )
    with record_outcome(attempt), transaction.atomic():
        plan, problems = _make_import_plan(request, document)
        if not problems and plan.fingerprint != fingerprint:
            raise SetupChangedError(
                "out of date: the configuration or the document changed since the preview, and nothing was applied"
            )
        _apply_changes(request, document, plan.changes, problems)
        _require_result(request, document)
        attempt.after = [describe_change(change) for change in plan.changes]
    return plan


def describe_change(change: SettingChange) -> str:
    """Return a change in one line, without values: `change rule Agents stranded: min_count`."""
    fields = f": {', '.join(field.field for field in change.fields)}" if change.fields else ""
    return f"{change.action} {change.setting.section.noun} {change.setting.label}{fields}"


def _settings_of(document: Document) -> Iterable[Setting]:
    return (setting for settings in document.configuration.settings.values() for setting in settings)


def _find_ownership_problems(request: ImportRequest, document: Document) -> Iterable[DocumentProblem]:
    """Yield the objects that the author of the document cannot import, changed or not."""
    for setting in _settings_of(document):
        if setting.cluster not in ("", request.cluster):
            text = (
                f"cluster: the {setting.section.noun} belongs to cluster {setting.cluster}: import it there"
            )
            yield document.make_problem(setting, text, "cluster")
        elif setting.section is Section.CHANNELS and setting.cluster not in request.writable_owners:
            # Not even a difference may be shown: it would tell the address.
            yield document.make_problem(setting, _describe_missing_access(setting))


def _make_import_plan(
    request: ImportRequest, document: Document
) -> tuple[ImportPlan, tuple[DocumentProblem, ...]]:
    """Return the plan with all problems that are found before a trial."""
    current = read_configuration(request.cluster, request.writable_owners)
    ownership_problems = list(_find_ownership_problems(request, document))
    refused_paths = {problem.path for problem in ownership_problems}
    changes, problems = draft_plan(current, document, request.variables, should_prune=request.should_prune)
    # What is wrong with a channel that the author cannot read would tell about it.
    problems = [problem for problem in problems if problem.path not in refused_paths] + ownership_problems
    for change in changes:
        if change.setting.path in refused_paths:
            continue
        if change.setting.cluster not in request.writable_owners:
            problems.append(document.make_problem(change.setting, _describe_missing_access(change.setting)))
        if change.values.get("allow_private") and not request.can_allow_private:
            text = "allow_private: only users who may manage access can allow private addresses"
            problems.append(document.make_problem(change.setting, text, "allow_private"))
    state = [(setting.key, sorted((name, _text_of(value)) for name, value in setting.values.items()), setting.number)
             for settings in current.settings.values() for setting in settings]  # fmt: skip
    text = "\0".join((repr(state), request.text, str(request.should_prune), request.cluster))
    plan = ImportPlan(
        changes,
        salted_hmac("refloat.alerting-import", text, algorithm="sha256").hexdigest()[:32],
        any(_silences_everything(change) for change in changes),
    )
    return plan, tuple(problems)


def _describe_missing_access(setting: Setting) -> str:
    owner = f"cluster {setting.cluster}" if setting.cluster else "the whole installation"
    return f"the {setting.section.noun} {setting.name!r} belongs to {owner}, and you cannot change it"


def _text_of(value: Any) -> str:
    return value.text if isinstance(value, Secret) else repr(value)


def _silences_everything(change: SettingChange) -> bool:
    if change.setting.section is not Section.WINDOWS or "matchers" not in change.values:
        return False
    try:
        return matches_everything(parse_matchers(change.values["matchers"]))
    except MatcherError:
        return False  # refused when it is applied


def _apply_changes(
    request: ImportRequest,
    document: Document,
    changes: Iterable[SettingChange],
    plan_problems: Iterable[DocumentProblem],
) -> None:
    """Apply changes in order. Raises ConfigurationError with the problems of the plan and of all changes.

    What depends on an object with a problem is not tried: its problem would be another one.
    """
    problems = list(plan_problems)
    new_routes: dict[Key, Route] = {}
    for change in changes:
        if problems and not can_be_tried(change, document, problems):
            continue
        try:
            with transaction.atomic():
                _apply_change(request, change, new_routes)
        except SetupError as error:
            columns = COLUMN_OF_FIELD[change.setting.section]
            field_of_column = {column: name for name, column in columns.items()}
            for column, sentence in error.problems.items():
                name = field_of_column.get(column, column)
                text = (
                    f"{change.setting.section.noun} {change.setting.name!r}: {name}: {sentence.rstrip('.')}"
                )
                problems.append(document.make_problem(change.setting, text, name))
        except ActionError as error:
            text = f"{change.setting.section.noun} {change.setting.name!r}: {error}"
            problems.append(document.make_problem(change.setting, text))
    if problems:
        raise ConfigurationError(problems)


def _require_result(request: ImportRequest, document: Document) -> None:
    """Require that the configuration is now that of the document. Raises ConfigurationError.

    A new address without its secrets drops the stored ones, for example.
    """
    current = read_configuration(request.cluster, request.writable_owners)
    changes = make_plan(current, document, request.variables, should_prune=request.should_prune)
    if changes:
        raise ConfigurationError(
            DocumentProblem(
                f"{change.setting.section.noun} {change.setting.name!r}: {_describe_deviation(field)}",
                document.line_of(change.setting, field.field),
            )
            for change in changes
            for field in change.fields
        )


def _describe_deviation(field: FieldChange) -> str:
    if field.field == "position":
        return "its place is ambiguous, because a route beside it has the same name. Rename one of them"
    return f"{field.field} would become {field.before}, not {field.after}"


def _apply_change(request: ImportRequest, change: SettingChange, new_routes: dict[Key, Route]) -> None:
    if change.action is ChangeAction.REMOVE:
        _remove(request, change)
    elif change.setting.section is Section.CHANNELS:
        _apply_channel(request, change)
    elif change.setting.section is Section.ROUTES:
        _apply_route(request, change, new_routes)
    elif change.setting.section is Section.RULES:
        _apply_rule(request, change)
    else:
        _apply_window(request, change)


def _apply_channel(request: ImportRequest, change: SettingChange) -> None:
    is_new = change.action is ChangeAction.ADD
    row = Channel(cluster=change.setting.cluster) if is_new else Channel.objects.get(pk=change.number)
    keys = {field.key for field in CHANNEL_KINDS[str(change.values.get("kind", row.kind))].fields}
    _write_columns(row, change, keys)
    entered_values = {
        name: value.text if isinstance(value, Secret) else value
        for name, value in change.values.items()
        if name in keys
    }
    save_channel(row, entered_values, request.actor, can_allow_private=request.can_allow_private)


def _apply_route(request: ImportRequest, change: SettingChange, new_routes: dict[Key, Route]) -> None:
    if change.action is ChangeAction.ADD:
        row = Route(
            cluster=change.setting.cluster,
            parent=_find_route(request.cluster, change.setting.key[:-1], new_routes),
        )
        channels: dict[str, list[Channel]] = {name: [] for name in ROUTE_CHANNEL_FIELDS}
    else:
        row = Route.objects.get(pk=change.number)
        channels = {name: list(getattr(row, name).all()) for name in ROUTE_CHANNEL_FIELDS}
    _write_columns(row, change, ROUTE_CHANNEL_FIELDS)
    for name in ROUTE_CHANNEL_FIELDS:
        if name in change.values:
            own = [
                Channel.objects.get(name=reference.name, cluster=reference.cluster)
                for reference in change.values[name]
            ]
            # Channels of other clusters are in no document of this one.
            foreign_channels = [
                channel for channel in channels[name] if channel.cluster not in ("", request.cluster)
            ]
            channels[name] = own + foreign_channels
    save_route(row, channels["channels"], channels["escalate_to"], request.actor)
    new_routes[change.setting.key] = row


def _find_route(cluster: str, key: Key, new_routes: Mapping[Key, Route]) -> Route | None:
    """Return the route of a key; None for the empty key of the parent of root routes. Raises SetupError."""
    if not key or key in new_routes:
        return new_routes.get(key)
    stored_setting = read_configuration(cluster).by_key(Section.ROUTES).get(key)
    if stored_setting is None:
        raise SetupError({"parent": "The parent route could not be created."})
    return Route.objects.get(pk=stored_setting.number)


def _apply_rule(request: ImportRequest, change: SettingChange) -> None:
    is_new = change.action is ChangeAction.ADD
    row = AlertRule(cluster=change.setting.cluster) if is_new else AlertRule.objects.get(pk=change.number)
    _write_columns(row, change)
    save_rule(row, request.actor)


def _apply_window(request: ImportRequest, change: SettingChange) -> None:
    is_new = change.action is ChangeAction.ADD
    row = (
        MaintenanceWindow(cluster=change.setting.cluster)
        if is_new
        else MaintenanceWindow.objects.get(pk=change.number)
    )
    was_enabled = row.enabled
    _write_columns(row, change, ("duration",))
    if "duration" in change.values:
        row.length = timedelta(seconds=change.values["duration"])
    is_enabled = row.enabled
    if is_new:
        windows.create_window(row, request.creator, request.now, request.actor, typed_word=request.typed_word)
        return
    if set(change.values) - {"is_enabled"}:
        # The confirmation is about what matches now: other changes of a confirmed window do not need it again.
        typed_word = request.typed_word if "matchers" in change.values else CONFIRMATION_WORD
        windows.change_window(row, request.now, request.actor, typed_word=typed_word)
    row.enabled = was_enabled
    windows.set_window_enabled(row, request.actor, is_enabled=is_enabled)


def _remove(request: ImportRequest, change: SettingChange) -> None:
    """Remove a stored object. Raises SetupError for a route above routes of other clusters."""
    number = change.number
    if change.setting.section is Section.CHANNELS:
        incident_actions.delete_channel(Channel.objects.get(pk=number), request.now, request.actor)
        return
    if change.setting.section is Section.WINDOWS:
        windows.delete_window(MaintenanceWindow.objects.get(pk=number), request.actor)
        return
    if change.setting.section is Section.RULES:
        setup_actions.delete_setting(AlertRule.objects.get(pk=number), request.actor)
        return
    row = Route.objects.get(pk=number)
    if descendants := descendant_rows_of(row):
        names = ", ".join(f"{route.name} (cluster {route.cluster})" for route in descendants)
        raise SetupError({"routes": f"It cannot be removed, because other routes are below it: {names}."})
    setup_actions.delete_setting(row, request.actor)


def _write_columns(row: Any, change: SettingChange, excluded_names: Collection[str] = ()) -> None:
    row.name = change.setting.name
    columns = COLUMN_OF_FIELD[change.setting.section]
    for name, value in change.values.items():
        if name not in excluded_names:
            setattr(row, columns.get(name, name), value)
