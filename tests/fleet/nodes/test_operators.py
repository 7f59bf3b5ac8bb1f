"""Who may make operators' calls, by real certificates: tests of the calls have the rest."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from fleet.nodes import operators


class Caller:
    """A call's context with, or without, a certificate of a role."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: str | None) -> None:
        monkeypatch.setattr(operators.peers, "role_of", lambda _: role)
        self.refused: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.refused = code, details


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        (None, False),
        ("console", False),
        *((role, True) for role in ("", "agent", "proxy", "auth", "gateway", "operator", "Console", "new")),
    ],
)
async def test_operators_are_none_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch, role: str | None, refused: bool
) -> None:
    """A certificate that is stolen from a node moves nothing, and neither does one of a role nobody listed."""
    caller: Any = Caller(monkeypatch, role)
    await operators.demand(caller, "drain instances", "127.0.0.1")
    assert (caller.refused is not None) == refused
    if refused:
        assert caller.refused[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("role", "host", "allowed"),
    [
        (None, "::1", True),
        (None, "localhost", True),
        ("operator", "127.0.0.1", False),
        ("console", "0.0.0.0", True),
        (None, "0.0.0.0", False),
        ("", "0.0.0.0", False),
        ("operator", "10.0.0.1", False),
        ("auth", "0.0.0.0", False),
    ],
)
def test_off_loopback_the_console_alone(role: str | None, host: str, allowed: bool) -> None:
    """Everybody who reaches a port of the network could ask otherwise."""
    assert (operators.refused(role, "drain it", host) == "") is allowed


def test_anybody_is_for_callers_without_a_certificate() -> None:
    """The flag opens a port that asks for no certificates; it does not make an agent an operator."""
    assert operators.refused(None, "write", "0.0.0.0", anybody=True) == ""
    assert operators.refused("agent", "write", "127.0.0.1", anybody=True) != ""


def test_sentence_names_the_roles() -> None:
    """The caller learns which certificate would do."""
    roles = {"proxy", "auth"}
    assert operators.refused("", "write", "::1", roles) == (
        "a certificate without a role may not write: it needs role 'auth' or 'proxy'"
    )
    assert operators.refused(None, "write", "::", roles) == (
        "off loopback only a certificate of role 'auth' or 'proxy' may write"
    )


async def test_reason_that_cannot_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field is named."""
    caller: Any = Caller(monkeypatch, None)
    await operators.demand_reason(caller, "kernel update")
    assert caller.refused is None
    await operators.demand_reason(caller, "two\nlines")
    assert caller.refused[0] is grpc.StatusCode.INVALID_ARGUMENT
