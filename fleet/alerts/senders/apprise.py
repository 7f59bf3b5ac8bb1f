"""Everything else, by Apprise's addresses: Slack, Teams, Telegram, ntfy and a hundred more.

docs/alerts.md, "Channels".
"""

from __future__ import annotations

import logging
from contextlib import nullcontext

from apprise import Apprise, LogCapture, NotifyType
from apprise.plugins import NotifyBase

from fleet.alerts.senders import Errand, SendError
from fleet.alerts.senders.guard import Guard, public_only
from fleet.alerts.senders.http import RefusedTarget, check_host

#: What would act on this machine, or read its files.
_LOCAL = frozenset(
    {"dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows", "file", "smpp", "rsyslog"}
)
_TYPES = {"resolved": NotifyType.SUCCESS, "test": NotifyType.INFO}
_BY_SEVERITY = {"critical": NotifyType.FAILURE, "warning": NotifyType.WARNING}


def send(errand: Errand) -> None:
    """Notify one address. Raises SendError."""
    service = open_address(errand.secrets.get("url", ""))
    host = getattr(service, "host", None)
    if host and "host" in service.template_tokens and not errand.allow_private:
        check_host(str(host))
    box = Apprise()
    box.add(service)
    kind = _TYPES.get(errand.kind) or _BY_SEVERITY.get(errand.incident["severity"], NotifyType.INFO)
    with (
        nullcontext(Guard()) if errand.allow_private else public_only() as guard,
        LogCapture(level=logging.WARNING) as said,  # type: ignore[no-untyped-call] # it has no types
    ):
        taken = box.notify(title=errand.payload["subject"], body=errand.payload["text"], notify_type=kind)
        why = said.getvalue().strip().splitlines() if said is not None else []
    if guard.refused:
        raise RefusedTarget("the service leads to a private or loopback address", permanent=True)
    if not taken:
        raise SendError(why[-1] if why else "the service did not take it")


def open_address(url: str) -> NotifyBase:
    """The service that an address means. Raises SendError."""
    service = Apprise.instantiate(url, suppress_exceptions=True) if url else None
    # By what Apprise made of the address, not by its text: Apprise forgives blanks, case and more.
    local = sorted(_LOCAL & (_schemes(service) | {url.partition("://")[0].strip().lower()}))
    if local:
        raise SendError(f"{local[0]}:// acts on the console's own machine and is not allowed", permanent=True)
    if not isinstance(service, NotifyBase):
        raise SendError("Apprise cannot read the address", permanent=True)
    # By what Apprise made of it, not by how it is spelled: it takes blanks before a scheme, and several names of one.
    schemes: set[str] = service.schemas()  # type: ignore[no-untyped-call] # it has no types
    for scheme in sorted(_LOCAL.intersection(schemes)):
        raise SendError(f"{scheme}:// acts on the console's own machine and is not allowed", permanent=True)
    return service


def _schemes(service: object) -> set[str]:
    """Return all schemes by which a service of Apprise is addressed; each may be one or several."""
    found: set[str] = set()
    for name in ("protocol", "secure_protocol"):
        given = getattr(service, name, None) or ()
        found |= {given} if isinstance(given, str) else {str(scheme) for scheme in given}
    return found
