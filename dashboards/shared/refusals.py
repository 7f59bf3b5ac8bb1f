"""Why a request was refused: stored in the request for the audit log, which does not parse responses.

docs/reference/changes.md, "Audit log".
"""

from __future__ import annotations

from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest

#: Response to a request that fails because of the database. The log has the error of the database.
DATABASE_UNAVAILABLE = (
    "The console database is unavailable: its disk may be full, or it may be locked or down. Try again."
)


def record(request: HttpRequest, sentence: str) -> None:
    """Store the reason of a refusal; the last call wins."""
    request.refloat_refusal = sentence  # type: ignore[attr-defined] # read back by reason_of()


def record_and_show(request: HttpRequest, sentence: str) -> None:
    """Store the reason of a refusal, and show it on the next page."""
    record(request, sentence)
    messages.error(request, sentence)


def mark_incomplete(request: HttpRequest) -> None:
    """Note that a form lacks a required text: it comes back with the error, which is no attempt to change anything."""
    request.refloat_is_incomplete = True  # type: ignore[attr-defined] # read back by is_incomplete()


def mark_if_incomplete(request: HttpRequest, form: Form) -> None:
    """Note that all errors of a form are required fields without a value."""
    if form.is_bound and form.errors and not form.non_field_errors():
        errors = [error for field_errors in form.errors.as_data().values() for error in field_errors]
        if all(error.code == "required" for error in errors):
            mark_incomplete(request)


def is_incomplete(request: HttpRequest) -> bool:
    """Return whether the form of a request lacks a required text."""
    return bool(getattr(request, "refloat_is_incomplete", False))


def reason_of(request: HttpRequest) -> str:
    """Return the reason of a refusal; empty if the request was not refused."""
    return str(getattr(request, "refloat_refusal", ""))
