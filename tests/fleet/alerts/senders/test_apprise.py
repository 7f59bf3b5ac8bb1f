from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.senders import SendError, apprise
from tests.fakes.errands import errand
from tests.fakes.receivers import receiving


def test_apprise_address_gets_title_and_text() -> None:
    """A service of Apprise's, over real HTTP."""
    with receiving() as receiver:
        apprise.send(errand(secrets={"url": receiver.url.replace("http://", "json://")}))
    (body,) = receiver.bodies
    assert body["title"] == "CRIT default: 207 agents stranded, proxy-1"
    assert body["type"] == "failure"


def test_service_that_does_not_take_it_is_an_error() -> None:
    """With what Apprise says of it."""
    with receiving(500) as receiver, pytest.raises(SendError):
        apprise.send(errand(secrets={"url": receiver.url.replace("http://", "json://")}))


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
        apprise.open_address(url)
    assert caught.value.permanent


def test_private_host_is_refused_without_leave() -> None:
    """Host-based services are looked up first; those of one fixed service have no host to choose."""
    sent = errand(secrets={"url": "json://localhost:1/x"})
    with pytest.raises(SendError, match="private"):
        apprise.send(
            type(sent)(sent.payload, sent.key, sent.at, sent.config, sent.secrets, allow_private=False)
        )


def test_host_that_turns_private_after_it_was_looked_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that is connected to counts, be it by another answer of the name's server or by a redirect."""
    monkeypatch.setattr(apprise, "check_host", lambda host: None)
    with receiving() as receiver:
        url = receiver.url.replace("http://", "json://")
        sent = replace(errand(secrets={"url": url}), allow_private=False)
        with pytest.raises(SendError, match="private") as caught:
            apprise.send(sent)
        assert receiver.requests == []
        assert caught.value.permanent
        apprise.send(replace(sent, allow_private=True))
        assert len(receiver.requests) == 1
