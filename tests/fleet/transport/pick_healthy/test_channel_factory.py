"""Targets and options of new connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.protocol.recovery.address_order import AddressOrder
from fleet.transport.channels import KeepaliveSettings
from fleet.transport.pick_healthy.channel_factory import _ConnectionFactory, open_channel
from fleet.transport.tls import TLSError, TLSFiles

MANY = [(f"127.0.0.{number}", 1) for number in range(1, 9)]


def test_first_connection_keeps_the_order() -> None:
    """pick_first does the same."""
    assert {_ConnectionFactory(MANY, None, None).next_target(False)[0] for _ in range(10)} == {
        "ipv4:" + ",".join(f"{host}:{port}" for host, port in MANY)
    }


def test_later_attempts_are_shuffled() -> None:
    """Otherwise all clients that leave a server would connect to the same other one."""
    targets = set()
    for _ in range(50):
        factory = _ConnectionFactory(MANY, None, None)
        factory.next_target(False)
        targets.add(factory.next_target(True)[0])
    assert len(targets) > 10
    assert all(
        sorted(target.removeprefix("ipv4:").split(",")) == [f"{h}:{p}" for h, p in MANY] for target in targets
    )


def test_later_attempts_start_with_another_address() -> None:
    """With two addresses the attempts alternate."""
    factory = _ConnectionFactory(MANY[:2], None, None)
    first, second = "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv4:127.0.0.2:1,127.0.0.1:1"
    targets = [factory.next_target(attempt > 0)[0] for attempt in range(5)]
    assert targets == [first, second, first, second, first]


def test_channels_share_an_address_order() -> None:
    """The first connection of another channel uses the next address."""
    order = AddressOrder(MANY[:2])
    assert (
        _ConnectionFactory(MANY[:2], None, None, order).next_target(False)[0].startswith("ipv4:127.0.0.1:1,")
    )
    assert (
        _ConnectionFactory(MANY[:2], None, None, order).next_target(False)[0].startswith("ipv4:127.0.0.2:1,")
    )


def test_one_name_is_shuffled_by_grpc() -> None:
    """Only gRPC knows the addresses behind the name."""
    factory = _ConnectionFactory([("auth.example", 3025)], None, None)
    first_target, second_target = factory.next_target(False), factory.next_target(True)
    assert first_target[0] == second_target[0] == "dns:///auth.example:3025"
    assert "shuffleAddressList" in str(dict(second_target[1])["grpc.service_config"])
    assert "grpc.service_config" not in dict(first_target[1])


def test_connections_are_separate_and_have_keep_alive() -> None:
    """A shared connection would lead a backup to the server that is to be left."""
    options = dict(
        _ConnectionFactory(MANY, None, KeepaliveSettings(ping_after=5.0, answer_within=2.0)).next_target(
            True
        )[1]
    )
    assert options["grpc.use_local_subchannel_pool"] == 1
    assert (options["grpc.keepalive_time_ms"], options["grpc.http2.ping_timeout_ms"]) == (5000, 2000)


async def test_invalid_targets_are_refused_at_once(tmp_path: Path) -> None:
    """The error comes before the first attempt."""
    with pytest.raises(TLSError):
        open_channel([("127.0.0.1", 1)], TLSFiles(authority=tmp_path / "none"))
    with pytest.raises(ValueError, match="several addresses"):
        open_channel([("a", 1), ("b", 2)])
