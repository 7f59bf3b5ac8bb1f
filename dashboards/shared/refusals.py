"""Why a request was refused: stored in the request for the audit log, which does not parse responses.

docs/reference/changes.md, "Audit log".
"""

from __future__ import annotations

from django.contrib import messages
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


def reason_of(request: HttpRequest) -> str:
    """Return the reason of a refusal; empty if the request was not refused."""
    return str(getattr(request, "refloat_refusal", ""))
