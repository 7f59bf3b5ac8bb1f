"""Telegram, ntfy, Matrix and a hundred more services, by Apprise URL.

docs/reference/alerts.md, "Notification channels".
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

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.guard import ConnectionGuard, refuse_private_addresses
from fleet.alerts.channels.http import TIMEOUT_SECONDS, PrivateAddressError, require_public_host
from fleet.alerts.channels.kind import SECRET_INPUT, ChannelField, ChannelKind

T = TypeVar("T")

#: Schemes that would act on the Refloat host or read its files.
_LOCAL_SCHEMES = frozenset(
    {"dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows", "file", "smpp", "rsyslog"}
)
_TYPE_OF_KIND = {"resolved": NotifyType.SUCCESS, "test": NotifyType.INFO}
_TYPE_OF_SEVERITY = {"critical": NotifyType.FAILURE, "warning": NotifyType.WARNING}

# A URL may name a template, a key or another attachment. Removing this scheme, which also applies to plain paths,
# keeps all of them from reading files of the Refloat host.
AttachmentManager().remove("file", unload=False)  # type: ignore[no-untyped-call] # it has no types

#: Addresses with an attempt in progress.
addresses_in_progress: set[str] = set()
_lock = threading.Lock()


def send(request: SendRequest) -> None:
    """Send the notification to one Apprise URL. Raises SendError."""
    address = request.secrets.get("url", "")
    service = create_service(address)
    host = getattr(service, "host", None)
    if host and "host" in service.template_tokens and not request.allow_private:
        require_public_host(str(host))
    # A URL may set its own timeouts and retries, but the outbox handles both.
    service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_SECONDS
    service.retry = 0
    notifier = Apprise()
    notifier.add(service)
    notify_type = _TYPE_OF_KIND.get(request.kind) or _TYPE_OF_SEVERITY.get(
        request.incident["severity"], NotifyType.INFO
    )
    title, body = request.payload["subject"], request.payload["text"]
    with nullcontext(ConnectionGuard()) if request.allow_private else refuse_private_addresses() as guard:
        outcome = run_with_timeout(
            TIMEOUT_SECONDS, address, lambda: notifier.notify(title=title, body=body, notify_type=notify_type)
        )
    if guard.refused_address:
        raise PrivateAddressError("the service connects to a private or loopback address", permanent=True)
    if not outcome:
        log_messages = [entry.message for entry in outcome.logs()]
        raise SendError(log_messages[-1] if log_messages else "the service did not accept the notification")


def run_with_timeout(timeout_seconds: float, address: str, attempt: Callable[[], T]) -> T:
    """Run an attempt in its own thread and wait `timeout_seconds` for it. Raises SendError if it takes longer.

    A plugin that reads a slow response cannot be stopped. Its thread is left running, and no other attempt is made to
    the same address meanwhile, because the sending threads serve all channels.
    """
    with _lock:
        if address in addresses_in_progress:
            raise SendError("an earlier attempt to this address is still running")
        addresses_in_progress.add(address)
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            outcome.set_exception(error)
        finally:
            with _lock:
                addresses_in_progress.discard(address)

    # Copy the context, because the guard of addresses is stored there.
    threading.Thread(target=copy_context().run, args=(run,), name="apprise", daemon=True).start()
    try:
        return outcome.result(timeout_seconds)
    except TimeoutError:
        raise SendError(f"no response within {timeout_seconds:g} s") from None


def create_service(url: str) -> NotifyBase:
    """Return the Apprise service of a URL. Raises SendError."""
    service = Apprise.instantiate(url, suppress_exceptions=True) if url else None
    # Check what Apprise parsed, not only the text, because Apprise tolerates blanks, case and more.
    schemes: set[str] = set()
    if isinstance(service, NotifyBase):
        schemes = service.schemas()  # type: ignore[no-untyped-call] # it has no types
    local_schemes = sorted(_LOCAL_SCHEMES & (schemes | {url.partition("://")[0].strip().lower()}))
    if local_schemes:
        raise SendError(
            f"{local_schemes[0]}:// is not allowed because it acts on the Refloat host", permanent=True
        )
    if not isinstance(service, NotifyBase):
        raise SendError("the address is not a valid Apprise URL", permanent=True)
    return service


KIND = ChannelKind(
    slug="apprise",
    label="Other services (Apprise)",
    summary="One message per notification to any of 100 services: Telegram, Matrix, ntfy and others.",
    setup_url="https://github.com/caronc/apprise/wiki",
    fields=(
        ChannelField(
            SECRET_INPUT,
            "url",
            "such as tgram://bot-token/chat-id",
            is_required=True,
            is_secret=True,
            label="Apprise address",
            check=create_service,
        ),
    ),
    send=send,
    # The destination may be in any part of the URL.
    origin_of=lambda field_values: field_values.get("url", ""),
    is_read_by_people=True,
)
