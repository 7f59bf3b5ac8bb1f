"""Reasons of failed connections."""

from __future__ import annotations

import errno
import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from fleet.transport import connection_errors

_KEY = ConnectionKey("127.0.0.1", 2, False, True, None, None, None)
_REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 2)")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (_REFUSED, "connection refused"),
        (aiohttp.ClientConnectorError(_KEY, _REFUSED), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "connection reset by peer"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (ssl.SSLError(1, "[SSL] record layer failure"), "[SSL] record layer failure"),
        (OSError("Multiple exceptions"), "multiple exceptions"),
    ],
)
def test_reason_is_the_text_of_the_system(error: OSError, text: str) -> None:
    """The text has no address and no words of a library."""
    assert connection_errors.describe(error) == text
