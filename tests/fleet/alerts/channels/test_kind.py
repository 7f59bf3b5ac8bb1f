from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from fleet.alerts.channels.kind import (
    ADDRESS_INPUT,
    SECRET_INPUT,
    ChannelField,
    ChannelInput,
    ChannelKind,
    destination_of,
    normalized_origin_of,
)
from tests.fakes.receivers import run_receiver
from tests.fakes.send_requests import make_send_request
from tests.meta.house import ROOT

_KIND = ChannelKind(
    slug="chat",
    label="Chat",
    summary="One message for each notification.",
    fields=(
        ChannelField(ADDRESS_INPUT, "url", "its address", is_secret=True, shows_origin=True),
        ChannelField(SECRET_INPUT, "token", "its token", is_secret=True),
        ChannelField(ChannelInput("room", "Room"), "room", "a room"),
    ),
    send=lambda request: None,
    origin_of=normalized_origin_of,
)


def test_secrets_are_stored_apart_from_the_visible_config() -> None:
    """The origin of a sealed address is visible; empty values are not stored."""
    values = {"url": "https://chat.example.com/T0/key", "token": "", "room": "ops"}
    assert _KIND.split_secrets(values) == (
        {"host": "https://chat.example.com", "room": "ops"},
        {"url": "https://chat.example.com/T0/key"},
    )


@pytest.mark.parametrize(
    ("config", "destination"),
    [
        ({}, ""),
        ({"to": "ops@example.com"}, "ops@example.com"),
        ({"host": "https://chat.example.com", "room": "ops"}, "https://chat.example.com/…, ops"),
        ({"url": "https://am.example.com/"}, "https://am.example.com/"),
        ({"url": "https://am.example.com/key"}, "https://am.example.com/…"),
    ],
)
def test_destination_leaves_out_paths(config: dict[str, str], destination: str) -> None:
    """A path often contains the key."""
    assert destination_of(config) == destination


def test_equal_origins_have_one_spelling() -> None:
    """An origin consists of scheme, host and port."""
    equal_urls = ("https://hooks.example.com/a", "https://HOOKS.example.com:443/b")
    other_urls = (
        "http://hooks.example.com/",
        "https://hooks.example.com:8443/",
        "https://hooks.example.org/",
    )
    origins = [normalized_origin_of({"url": url}) for url in (*equal_urls, *other_urls)]
    assert origins[0] == origins[1]
    assert len(set(origins)) == 4
    assert (
        normalized_origin_of({"host": "https://hooks.example.com"})
        == normalized_origin_of({}, equal_urls[0])
        == origins[0]
    )


@pytest.mark.parametrize("url", ["", "nonsense", "https://x:99999/", "https://[x/"])
def test_invalid_address_has_no_origin(url: str) -> None:
    """The form refuses such an address."""
    assert normalized_origin_of({"url": url}) == ""


def test_module_of_the_how_to_sends_notifications(tmp_path: Path) -> None:
    """The channel kind in docs/how-to/add-a-channel.md works."""
    (source,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/how-to/add-a-channel.md").read_text(), re.DOTALL
    )
    module = tmp_path / "chat.py"
    module.write_text(source)
    kind: ChannelKind = runpy.run_path(str(module))["KIND"]
    with run_receiver() as receiver:
        config, secrets = kind.split_secrets({"url": receiver.url, "room": "ops", "token": "t"})
        kind.send(make_send_request(config=config, secrets=secrets))
    assert receiver.bodies[0]["room"] == "ops"
    assert receiver.requests[0][1]["Authorization"] == "Bearer t"
    assert kind.origin_of(config) == normalized_origin_of({"url": receiver.url})
