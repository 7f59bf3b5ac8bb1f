"""Everything else, by Apprise's addresses: Slack, Teams, Telegram, ntfy and a hundred more.

docs/alerts.md, "Channels".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from contextvars import copy_context
from typing import TypeVar

from apprise import Apprise, AttachmentManager, NotifyType
from apprise.plugins import NotifyBase

from fleet.alerts.channels import SendRequest, SendError
from fleet.alerts.channels.guard import ConnectionGuard, public_only
from fleet.alerts.channels.http import TIMEOUT, PrivateAddressError, check_host
from fleet.alerts.channels.kind import SECRET, ChannelKind, Field

T = TypeVar("T")

#: What would act on this machine, or read its files.
_LOCAL = frozenset(
    {"dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows", "file", "smpp", "rsyslog"}
)
_TYPES = {"resolved": NotifyType.SUCCESS, "test": NotifyType.INFO}
_BY_SEVERITY = {"critical": NotifyType.FAILURE, "warning": NotifyType.WARNING}

# An address may name a template, a key or another attachment. Without this scheme, which is also what a path without
# any is taken for, none of them is a file of this machine.
AttachmentManager().remove("file", unload=False)  # type: ignore[no-untyped-call] # it has no types

#: Addresses that an attempt is under way to.
pending_addresses: set[str] = set()
_lock = threading.Lock()


def send(request: SendRequest) -> None:
    """Notify one address. Raises SendError."""
    address = request.secrets.get("url", "")
    service = open_service(address)
    host = getattr(service, "host", None)
    if host and "host" in service.template_tokens and not request.allow_private:
        check_host(str(host))
    # An address may ask for other waits, and for retries of its own: the outbox has both.
    service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT
    service.retry = 0
    notifier = Apprise()
    notifier.add(service)
    notify_type = _TYPES.get(request.kind) or _BY_SEVERITY.get(request.incident["severity"], NotifyType.INFO)
    title, body = request.payload["subject"], request.payload["text"]
    with nullcontext(ConnectionGuard()) if request.allow_private else public_only() as guard:
        outcome = run_with_timeout(TIMEOUT, address, lambda: notifier.notify(title=title, body=body, notify_type=notify_type))
    if guard.refused_address:
        raise PrivateAddressError("the service leads to a private or loopback address", permanent=True)
    if not outcome:
        log_messages = [entry.message for entry in outcome.logs()]
        raise SendError(log_messages[-1] if log_messages else "the service did not take it")


def run_with_timeout(seconds: float, address: str, attempt: Callable[[], T]) -> T:
    """Make an attempt in a thread of its own, and wait so long for it. Raises SendError when it lasts longer.

    Nobody can end a plugin that reads what a receiver sends a byte at a time. So it is left behind, and no other
    attempt is made to the same address as long as it lasts: the threads that send serve all channels.
    """
    with _lock:
        if address in pending_addresses:
            raise SendError("an earlier attempt has not ended yet")
        pending_addresses.add(address)
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - it is raised to who waits
            outcome.set_exception(error)
        finally:
            with _lock:
                pending_addresses.discard(address)

    # The check of addresses is of the context.
    threading.Thread(target=copy_context().run, args=(run,), name="apprise", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        raise SendError(f"no answer within {seconds:g} s") from None


def open_service(url: str) -> NotifyBase:
    """The service that an address means. Raises SendError."""
    service = Apprise.instantiate(url, suppress_exceptions=True) if url else None
    # By what Apprise made of the address, not by its text alone: Apprise forgives blanks, case and more.
    schemes: set[str] = set()
    if isinstance(service, NotifyBase):
        schemes = service.schemas()  # type: ignore[no-untyped-call] # it has no types
    local = sorted(_LOCAL & (schemes | {url.partition("://")[0].strip().lower()}))
    if local:
        raise SendError(f"{local[0]}:// acts on the console's own machine and is not allowed", permanent=True)
    if not isinstance(service, NotifyBase):
        raise SendError("Apprise cannot read the address", permanent=True)
    return service


KIND = ChannelKind(
    slug="apprise",
    fields=(Field(SECRET, "url", "the whole address", is_required=True, is_secret=True, check=open_service),),
    send=send,
    # Where a service sends may stand anywhere in its address.
    origin=lambda field_values: field_values.get("url", ""),
    is_read=True,
)
