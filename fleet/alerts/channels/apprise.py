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

from fleet.alerts.channels import Errand, SendError
from fleet.alerts.channels.guard import Guard, public_only
from fleet.alerts.channels.http import TIMEOUT, RefusedTarget, check_host
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
under_way: set[str] = set()
_lock = threading.Lock()


def send(errand: Errand) -> None:
    """Notify one address. Raises SendError."""
    address = errand.secrets.get("url", "")
    service = open_address(address)
    host = getattr(service, "host", None)
    if host and "host" in service.template_tokens and not errand.allow_private:
        check_host(str(host))
    # An address may ask for other waits, and for retries of its own: the outbox has both.
    service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT
    service.retry = 0
    box = Apprise()
    box.add(service)
    kind = _TYPES.get(errand.kind) or _BY_SEVERITY.get(errand.incident["severity"], NotifyType.INFO)
    title, body = errand.payload["subject"], errand.payload["text"]
    with nullcontext(Guard()) if errand.allow_private else public_only() as guard:
        result = within(TIMEOUT, address, lambda: box.notify(title=title, body=body, notify_type=kind))
    if guard.refused:
        raise RefusedTarget("the service leads to a private or loopback address", permanent=True)
    if not result:
        why = [entry.message for entry in result.logs()]
        raise SendError(why[-1] if why else "the service did not take it")


def within(seconds: float, address: str, attempt: Callable[[], T]) -> T:
    """Make an attempt in a thread of its own, and wait so long for it. Raises SendError when it lasts longer.

    Nobody can end a plugin that reads what a receiver sends a byte at a time. So it is left behind, and no other
    attempt is made to the same address as long as it lasts: the threads that send serve all channels.
    """
    with _lock:
        if address in under_way:
            raise SendError("an earlier attempt has not ended yet")
        under_way.add(address)
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - it is raised to who waits
            outcome.set_exception(error)
        finally:
            with _lock:
                under_way.discard(address)

    # The check of addresses is of the context.
    threading.Thread(target=copy_context().run, args=(run,), name="apprise", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        raise SendError(f"no answer within {seconds:g} s") from None


def open_address(url: str) -> NotifyBase:
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
    fields=(Field(SECRET, "url", "the whole address", is_required=True, is_secret=True, check=open_address),),
    send=send,
    # Where a service sends may stand anywhere in its address.
    origin=lambda values: values.get("url", ""),
    is_read=True,
)
