"""Why a request was refused, kept with the request where that is decided: the log of attempts reads no response.

docs/changes.md, "The log".
"""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

#: The answer to what a full disk, a lock or a database that is down keeps from being done. The log has its words.
DATABASE_UNAVAILABLE = (
    "The console's database cannot be used: its disk may be full, or it may be locked or down. Try again."
)


def record(request: HttpRequest, sentence: str) -> None:
    """Keep the reason; the last one counts."""
    request.refloat_refusal = sentence  # type: ignore[attr-defined] # read back by reason()


def record_and_show(request: HttpRequest, sentence: str) -> None:
    """Keep the reason, and show it on the page that follows."""
    record(request, sentence)
    messages.error(request, sentence)


def reason_of(request: HttpRequest) -> str:
    """Return the reason; empty for a request that nobody refused."""
    return str(getattr(request, "refloat_refusal", ""))
