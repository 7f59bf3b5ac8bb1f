from __future__ import annotations

import logging
import socket
import threading
from dataclasses import replace

import pytest

from fleet.alerts.channels import SendError, apprise
from tests.fakes.errands import send_request
from tests.fakes.receivers import receiving
from tests.fakes.waiting import eventually_sync


def test_apprise_address_gets_title_and_text() -> None:
    """A service of Apprise's, over real HTTP."""
    with receiving() as receiver:
        apprise.send(send_request(secrets={"url": receiver.url.replace("http://", "json://")}))
    (body,) = receiver.bodies
    assert body["title"] == "CRIT default: 207 agents stranded, proxy-1"
    assert body["type"] == "failure"


def test_service_that_does_not_take_it_is_an_error() -> None:
    """With what Apprise says of it."""
    with receiving(500) as receiver, pytest.raises(SendError):
        apprise.send(send_request(secrets={"url": receiver.url.replace("http://", "json://")}))


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
def test_addresses_of_this_machine_and_nonsense_are_refused(url: str) -> None:
    """For good, with a sentence."""
    with pytest.raises(SendError) as caught:
        apprise.open_service(url)
    assert caught.value.permanent


def test_private_host_is_refused_without_leave() -> None:
    """Host-based services are looked up first; those of one fixed service have no host to choose."""
    sent = send_request(secrets={"url": "json://localhost:1/x"})
    with pytest.raises(SendError, match="private"):
        apprise.send(
            type(sent)(sent.payload, sent.key, sent.at, sent.config, sent.secrets, allow_private=False)
        )


def test_host_that_turns_private_after_it_was_looked_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that is connected to counts, be it by another answer of the name's server or by a redirect."""
    monkeypatch.setattr(apprise, "check_host", lambda host: None)
    with receiving() as receiver:
        url = receiver.url.replace("http://", "json://")
        sent = replace(send_request(secrets={"url": url}), allow_private=False)
        with pytest.raises(SendError, match="private") as caught:
            apprise.send(sent)
        assert receiver.requests == []
        assert caught.value.permanent
        apprise.send(replace(sent, allow_private=True))
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
def test_address_that_names_a_file_of_this_machine_is_refused(url: str) -> None:
    """Templates and keys are attachments to Apprise, and it would read them where the console runs."""
    without = apprise.open_service(url.partition("?")[0] + ("?mode=legacy" if url.startswith("fcm") else ""))
    assert without.url()
    with pytest.raises(SendError, match="not a valid Apprise URL"):
        apprise.open_service(url)


def test_attempt_that_does_not_end_is_left_behind() -> None:
    """And no other one is made to that address as long as it lasts; other addresses do not wait for it."""
    gate = threading.Event()
    with pytest.raises(SendError, match=r"no response within 0\.05 s"):
        apprise.run_with_timeout(0.05, "one", gate.wait)
    with pytest.raises(SendError, match="earlier attempt"):
        apprise.run_with_timeout(0.05, "one", gate.wait)
    assert apprise.run_with_timeout(10.0, "two", lambda: 2) == 2
    gate.set()
    eventually_sync(lambda: not apprise.pending_addresses)
    assert apprise.run_with_timeout(10.0, "one", lambda: 1) == 1


def test_waits_of_an_address_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do its retries: both would hold a thread that sends for as long as somebody likes."""
    monkeypatch.setattr(apprise, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/?rto=86400&cto=86400&retry=10&wait=20"
        with pytest.raises(SendError):
            apprise.send(send_request(secrets={"url": url}))
        eventually_sync(lambda: not apprise.pending_addresses)


def test_error_is_that_of_the_own_attempt() -> None:
    """What Apprise logs of other channels meanwhile is not told: they may be of another cluster."""
    ended = threading.Event()

    def chatter() -> None:
        while not ended.wait(0.001):
            logging.getLogger("apprise").error("the address of another channel")

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        with receiving(500) as receiver, pytest.raises(SendError, match="JSON") as caught:
            apprise.send(send_request(secrets={"url": receiver.url.replace("http://", "json://")}))
    finally:
        ended.set()
        thread.join()
    assert "another channel" not in str(caught.value)


def test_every_service_of_apprise_can_be_judged() -> None:
    """Kodi's has a number where others have their scheme, and its channel could not be made."""
    assert apprise.open_service("kodi://example.com").url()
