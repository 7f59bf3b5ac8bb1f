from __future__ import annotations

import logging
import socket
import threading
from dataclasses import replace

import pytest

from fleet.alerts.channels import SendError, apprise
from tests.fakes.receivers import run_receiver
from tests.fakes.send_requests import make_send_request
from tests.fakes.waiting import eventually_sync


def test_apprise_address_gets_title_and_text() -> None:
    """An Apprise service over real HTTP."""
    with run_receiver() as receiver:
        apprise.send(make_send_request(secrets={"url": receiver.url.replace("http://", "json://")}))
    (body,) = receiver.bodies
    assert body["title"] == "CRIT default: 207 agents stranded (proxy-1)"
    assert body["type"] == "failure"


def test_service_that_responds_with_500_raises_an_error() -> None:
    """A send error is raised."""
    with run_receiver(500) as receiver, pytest.raises(SendError):
        apprise.send(make_send_request(secrets={"url": receiver.url.replace("http://", "json://")}))


@pytest.mark.parametrize(
    "url",
    [
        *(
            "syslog://",
            "\tsyslog://",
            " syslog://",
            "SysLog://",
            "syslog://local0",
            "file:///etc/passwd",
            "dbus://",
        ),
        *("gio://", "rsyslog://127.0.0.1", "\nrsyslog://127.0.0.1", "nonsense", "", "nosuch://x"),
    ],
)
def test_local_or_invalid_address_is_refused(url: str) -> None:
    """The error is permanent."""
    with pytest.raises(SendError) as error_info:
        apprise.create_service(url)
    assert error_info.value.permanent


def test_private_host_is_refused_unless_allowed() -> None:
    """The host name is resolved before the notification is sent."""
    request = make_send_request(secrets={"url": "json://localhost:1/x"})
    with pytest.raises(SendError, match="private"):
        apprise.send(
            type(request)(
                request.payload, request.key, request.at, request.config, request.secrets, allow_private=False
            )
        )


def test_host_that_resolves_to_a_private_address_after_the_check_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The address of the connection counts: DNS may answer differently later, and a service may redirect."""
    monkeypatch.setattr(apprise, "require_public_host", lambda host: None)
    with run_receiver() as receiver:
        url = receiver.url.replace("http://", "json://")
        request = replace(make_send_request(secrets={"url": url}), allow_private=False)
        with pytest.raises(SendError, match="private") as error_info:
            apprise.send(request)
        assert receiver.requests == []
        assert error_info.value.permanent
        apprise.send(replace(request, allow_private=True))
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "workflows://example.com:443/WORKFLOW1a/SIGNATURE?template=/etc/passwd",
        "workflows://example.com:443/WORKFLOW1a/SIGNATURE?template=file:///etc/passwd",
        "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js?template=/etc/passwd",
        "tgram://123456789:abcdefg_hijklmnop/12315544?template=/etc/passwd",
        "fcm://project/device?mode=oauth2&keyfile=/etc/passwd",
        "mailto://user:secret@example.com?pgp=yes&pgpkey=/etc/passwd",
    ],
)
def test_address_that_names_a_local_file_is_refused(url: str) -> None:
    """Apprise would read templates and keys from the disk of the console."""
    service = apprise.create_service(
        url.partition("?")[0] + ("?mode=legacy" if url.startswith("fcm") else "")
    )
    assert service.url()
    with pytest.raises(SendError, match="not a valid Apprise URL"):
        apprise.create_service(url)


def test_attempt_that_exceeds_the_timeout_is_abandoned() -> None:
    """No other attempt is made to that address while it runs; other addresses do not wait."""
    gate = threading.Event()
    with pytest.raises(SendError, match=r"no response within 0\.05 s"):
        apprise.run_with_timeout(0.05, "one", gate.wait)
    with pytest.raises(SendError, match="earlier attempt"):
        apprise.run_with_timeout(0.05, "one", gate.wait)
    assert apprise.run_with_timeout(10.0, "two", lambda: 2) == 2
    gate.set()
    eventually_sync(lambda: not apprise.addresses_in_progress)
    assert apprise.run_with_timeout(10.0, "one", lambda: 1) == 1


def test_timeouts_in_an_address_do_not_extend_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timeouts and retries in an address cannot occupy a sender thread for longer than the timeout."""
    monkeypatch.setattr(apprise, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/?rto=86400&cto=86400&retry=10&wait=20"
        with pytest.raises(SendError):
            apprise.send(make_send_request(secrets={"url": url}))
        eventually_sync(lambda: not apprise.addresses_in_progress)


def test_error_does_not_contain_log_lines_of_another_channel() -> None:
    """Other channels may belong to another cluster."""
    stop_event = threading.Event()

    def log_errors() -> None:
        while not stop_event.wait(0.001):
            logging.getLogger("apprise").error("the address of another channel")

    thread = threading.Thread(target=log_errors)
    thread.start()
    try:
        with run_receiver(500) as receiver, pytest.raises(SendError, match="JSON") as error_info:
            apprise.send(make_send_request(secrets={"url": receiver.url.replace("http://", "json://")}))
    finally:
        stop_event.set()
        thread.join()
    assert "another channel" not in str(error_info.value)


def test_kodi_service_is_accepted() -> None:
    """Its schema is a number where other services have a string."""
    assert apprise.create_service("kodi://example.com").url()
