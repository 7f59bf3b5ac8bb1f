from __future__ import annotations

import gzip
import io
from collections.abc import AsyncIterator

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory

from dashboards.compression import CompressionMiddleware, accepts_gzip
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

_GZIP = {"Accept-Encoding": "gzip, deflate, br"}


def _request(accept_encoding: str | None) -> HttpRequest:
    headers = {} if accept_encoding is None else {"Accept-Encoding": accept_encoding}
    return RequestFactory().get("/", headers=headers)


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1, gzip;q=0.5", True),
        ("gzip;q=0.05", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, identity", False),
        ("identity", False),
        ("", False),
        (None, False),
    ],
)
def test_accepted_encodings(header: str | None, accepts: bool) -> None:
    """Weight 0 refuses an encoding."""
    assert accepts_gzip(_request(header)) is accepts
    response = CompressionMiddleware(lambda _: HttpResponse())(_request(header))
    assert not isinstance(response, StreamingHttpResponse)
    text = CompressionMiddleware(lambda _: HttpResponse("fleet " * 100))(_request(header))
    assert (text.headers.get("Content-Encoding") == "gzip") is accepts


def test_small_and_compressed_responses_stay() -> None:
    """A short response would get longer, a compressed one stays."""
    small = CompressionMiddleware(lambda _: HttpResponse("ok"))(_request("gzip"))
    assert "Content-Encoding" not in small.headers
    brotli = HttpResponse(b"x" * 500, headers={"Content-Encoding": "br"})
    assert CompressionMiddleware(lambda _: brotli)(_request("gzip")).content == b"x" * 500  # type: ignore[attr-defined]


def test_size_does_not_reveal_the_content() -> None:
    """Equal responses have different sizes (BREACH)."""
    middleware = CompressionMiddleware(lambda _: HttpResponse("token " * 100))
    assert len({middleware(_request("gzip"))["Content-Length"] for _ in range(40)}) > 1


async def test_stream_is_one_gzip_file() -> None:
    """Browsers read the first gzip file of a response only."""

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(50):
            yield f"agent-{number},healthy\n".encode() * 100

    async def view(_: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(chunks(), headers={"Content-Length": "1"})

    response = await CompressionMiddleware(view)(_request("gzip"))  # type: ignore[arg-type,misc]
    body = b"".join([chunk async for chunk in response])
    first_file = gzip.GzipFile(fileobj=io.BytesIO(body))
    assert first_file.read().count(b"\n") == 5000
    assert body.count(b"\x1f\x8b\x08") == 1
    assert response["Content-Encoding"] == "gzip"
    assert response["Vary"] == "Accept-Encoding"
    assert "Content-Length" not in response.headers


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/agents/", "/api/v1/agents", "/metrics"])
def test_pages_and_api_are_compressed(
    client: Client, fake_reader: FakeReader, person: MakeUser, path: str
) -> None:
    """With every client that accepts it."""
    client.force_login(person("admin"))
    plain, compressed = client.get(path), client.get(path, headers=_GZIP)
    if len(plain.content) < 200:
        assert "Content-Encoding" not in compressed.headers
        return
    assert compressed["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in compressed["Vary"]
    assert len(compressed.content) < len(plain.content)
