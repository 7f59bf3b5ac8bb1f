"""How connections are opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.protocol.recovery.address_order import AddressOrder
from fleet.transport.channels import DeadPeer
from fleet.transport.pick_healthy.channel_factory import _ConnectionFactory, open_channel
from fleet.transport.tls import TLSError, TLSFiles

MANY = [(f"127.0.0.{number}", 1) for number in range(1, 9)]


def test_first_connection_keeps_the_order() -> None:
    """As pick_first does."""
    assert {_ConnectionFactory(MANY, None, None).target(False)[0] for _ in range(10)} == {
        "ipv4:" + ",".join(f"{host}:{port}" for host, port in MANY)
    }


def test_later_attempts_shuffle() -> None:
    """Else every client that leaves the same server would go to the same next one."""
    targets = set()
    for _ in range(50):
        opener = _ConnectionFactory(MANY, None, None)
        opener.target(False)
        targets.add(opener.target(True)[0])
    assert len(targets) > 10
    assert all(
        sorted(target.removeprefix("ipv4:").split(",")) == [f"{h}:{p}" for h, p in MANY] for target in targets
    )


def test_later_attempts_do_not_lead_back() -> None:
    """Of two addresses a client that leaves one always tries the other one first."""
    opener = _ConnectionFactory(MANY[:2], None, None)
    first, second = "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv4:127.0.0.2:1,127.0.0.1:1"
    targets = [opener.target(attempt > 0)[0] for attempt in range(5)]
    assert targets == [first, second, first, second, first]


def test_channels_with_one_order_go_on_where_the_others_are() -> None:
    """The first connection of another channel goes elsewhere as well."""
    order = AddressOrder(MANY[:2])
    assert _ConnectionFactory(MANY[:2], None, None, order).target(False)[0].startswith("ipv4:127.0.0.1:1,")
    assert _ConnectionFactory(MANY[:2], None, None, order).target(False)[0].startswith("ipv4:127.0.0.2:1,")


def test_one_name_is_shuffled_by_grpc() -> None:
    """Only gRPC sees the addresses behind it."""
    opener = _ConnectionFactory([("auth.example", 3025)], None, None)
    plain, shuffled = opener.target(False), opener.target(True)
    assert plain[0] == shuffled[0] == "dns:///auth.example:3025"
    assert "shuffleAddressList" in str(dict(shuffled[1])["grpc.service_config"])
    assert "grpc.service_config" not in dict(plain[1])


def test_each_connection_is_its_own_and_is_watched_by_pings() -> None:
    """A shared connection would lead a backup to the very server that is to be left."""
    options = dict(
        _ConnectionFactory(MANY, None, DeadPeer(ping_after=5.0, answer_within=2.0)).target(True)[1]
    )
    assert options["grpc.use_local_subchannel_pool"] == 1
    assert (options["grpc.keepalive_time_ms"], options["grpc.http2.ping_timeout_ms"]) == (5000, 2000)


async def test_what_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    """Not by an attempt in the night."""
    with pytest.raises(TLSError):
        open_channel([("127.0.0.1", 1)], TLSFiles(authority=tmp_path / "none"))
    with pytest.raises(ValueError, match="several addresses"):
        open_channel([("a", 1), ("b", 2)])
