from __future__ import annotations

import pytest
from pytest_django import Settings

from dashboards.live.sockets import is_origin_allowed


def _scope(**headers: str) -> dict[str, list[tuple[bytes, bytes]]]:
    return {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"host": "localhost", "origin": "http://localhost"}, True),
        ({"host": "localhost:8000", "origin": "http://LOCALHOST:8000"}, True),
        # TLS ends before us, so the scheme is not compared.
        ({"host": "localhost", "origin": "https://localhost"}, True),
        ({"host": "localhost:8000", "origin": "http://localhost:9000"}, False),
        ({"host": "localhost", "origin": "http://localhost.evil.example"}, False),
        ({"host": "localhost", "origin": "null"}, False),
        ({"host": "localhost", "origin": ""}, False),
        ({"host": "localhost"}, False),
        ({"host": "localhost", "authorization": "Bearer x"}, True),
        ({"host": "localhost", "authorization": "Bearer x", "origin": "http://evil.example"}, False),
        ({"host": "evil.example", "origin": "http://evil.example"}, False),
        ({"origin": "http://localhost"}, False),
    ],
)
def test_origin_is_ours(headers: dict[str, str], is_own: bool) -> None:
    """The page's host and port must be those it talks to, and one of ours; only programs may leave the origin out."""
    assert is_origin_allowed(_scope(**headers)) is is_own


def test_origin_trusted_by_settings(settings: Settings) -> None:
    """With its scheme, as Django's own setting has it."""
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example.com"]
    assert is_origin_allowed(_scope(host="localhost", origin="https://console.example.com"))
    assert not is_origin_allowed(_scope(host="localhost", origin="http://console.example.com"))
