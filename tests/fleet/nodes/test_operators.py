"""Who may make operators' calls, by real certificates: tests of the calls have the rest."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from fleet.nodes import operators


class Caller:
    """A call's context with, or without, a certificate of a role."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
        monkeypatch.setattr(operators.peers, "role_of", lambda _: role)
        self.refused: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.refused = code, details


@pytest.mark.parametrize(
    ("role", "refused"), [("", False), ("console", False), ("agent", True), ("proxy", True), ("auth", True)]
)
async def test_operators_are_none_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch, role: str, refused: bool
) -> None:
    """A certificate stolen from a node moves nothing."""
    caller: Any = Caller(monkeypatch, role)
    await operators.demand(caller, "drain instances", "127.0.0.1")
    assert (caller.refused is not None) == refused
    if refused:
        assert caller.refused[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("role", "host", "allowed"),
    [
        ("", "::1", True),
        ("", "localhost", True),
        ("operator", "127.0.0.1", True),
        ("console", "0.0.0.0", True),
        ("", "0.0.0.0", False),
        ("operator", "10.0.0.1", False),
        ("auth", "0.0.0.0", False),
    ],
)
def test_off_loopback_the_console_alone(role: str, host: str, allowed: bool) -> None:
    """Whoever reaches a port of the network could ask otherwise."""
    assert (operators.refused(role, "drain it", host) == "") is allowed


async def test_reason_that_cannot_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field is named."""
    caller: Any = Caller(monkeypatch, "")
    await operators.demand_reason(caller, "kernel update")
    assert caller.refused is None
    await operators.demand_reason(caller, "two\nlines")
    assert caller.refused[0] is grpc.StatusCode.INVALID_ARGUMENT
