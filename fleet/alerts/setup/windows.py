"""Actions of people on maintenance windows: create, change, enable, disable, delete. Pages and the API use these.

Each is in the audit log, also when it is refused. docs/reference/alerts.md, "Silences".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fleet.alerts import setup_actions
from fleet.alerts.incident_actions import ActionError, check_confirmation, check_reason
from fleet.alerts.matchers import MatcherError, parse_matchers
from fleet.alerts.silences import WindowError
from fleet.alerts.store import window_of
from fleet.audit import RequestActor
from fleet.models.alerting import MaintenanceWindow

#: Columns that people edit; `enabled` has actions of its own.
EDITABLE_FIELDS = (
    "name", "matchers", "rule", "first_day", "start_time", "length", "time_zone", "reason",
)  # fmt: skip
#: A window must have an occurrence after now, within this many years of its first day (silences.Window.check).
_PAST_MESSAGE = "the maintenance window has no occurrence in the next 5 years"


class WindowChangedError(ActionError):
    """Somebody changed the window since the user read it; `changed_fields` are the columns that differ."""

    def __init__(self, message: str, changed_fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.changed_fields = tuple(changed_fields)


def version_of(row: MaintenanceWindow) -> str:
    """Return a text that differs when a column of a window differs: an edit names the version that it began with."""
    columns = [str(getattr(row, name)) for name in (*EDITABLE_FIELDS, "enabled")]
    return hashlib.sha256("\0".join(columns).encode()).hexdigest()[:16]


def check_window(row: MaintenanceWindow, now: float, *, typed_word: str = "") -> None:
    """Raise ActionError unless a window can be stored: name, reason, matchers, schedule, and an occurrence to come."""
    if not row.name.strip():
        raise ActionError("enter a name for the maintenance window")
    check_reason(row.reason)
    try:
        check_confirmation(parse_matchers(row.matchers), typed_word)
        window = window_of(row)
        window.check()
    except (MatcherError, WindowError) as error:
        raise ActionError(str(error)) from error
    if not window.upcoming_silences(now) and window.current_silence(now) is None:
        raise ActionError(_PAST_MESSAGE)


def create_window(
    row: MaintenanceWindow, creator: str, now: float, actor: RequestActor, *, typed_word: str = ""
) -> None:
    """Create a window. Raises ActionError. `creator` is always the signed-in user."""
    row.creator = creator[:200]

    def save() -> None:
        _check_values(row, now, typed_word)
        row.save(force_insert=True)

    setup_actions.save_setting(row, save, actor)


def change_window(
    row: MaintenanceWindow, now: float, actor: RequestActor, *, seen_version: str = "", typed_word: str = ""
) -> None:
    """Store the new values of a window. Raises ActionError, or WindowChangedError if it is not `seen_version` now.

    `seen_version` empty: the last writer wins.
    """
    stored_row = MaintenanceWindow.objects.filter(pk=row.pk).first()
    if stored_row is None:
        raise WindowChangedError("somebody deleted this maintenance window. Save it as a new one")
    if seen_version and version_of(stored_row) != seen_version:
        changed_fields = [name for name in EDITABLE_FIELDS if getattr(stored_row, name) != getattr(row, name)]
        raise WindowChangedError("out of date: somebody changed this maintenance window", changed_fields)
    row.enabled = stored_row.enabled

    def save() -> None:
        _check_values(row, now, typed_word)
        stored_values = {name: getattr(stored_row, name) for name in EDITABLE_FIELDS}
        new_values = {name: getattr(row, name) for name in EDITABLE_FIELDS}
        if not MaintenanceWindow.objects.filter(pk=row.pk, **stored_values).update(**new_values):
            raise WindowChangedError("out of date: somebody changed this maintenance window")

    setup_actions.save_setting(row, save, actor)


def set_window_enabled(row: MaintenanceWindow, actor: RequestActor, *, is_enabled: bool) -> bool:
    """Enable or disable a window. Return False if nothing changed."""
    if row.enabled == is_enabled:
        return False
    row.enabled = is_enabled
    setup_actions.save_setting(row, lambda: row.save(update_fields=["enabled"]), actor)
    return True


def delete_window(row: MaintenanceWindow, actor: RequestActor) -> None:
    """Delete a window; its last values stay in the audit log."""
    setup_actions.delete_setting(row, actor)


def _check_values(row: MaintenanceWindow, now: float, typed_word: str) -> None:
    row.name, row.matchers, row.reason = row.name.strip(), row.matchers.strip(), row.reason.strip()[:500]
    check_window(row, now, typed_word=typed_word)
