"""Middleware: gzip for pages, API responses and exports. Static files are compressed by `dashboards.static_assets`."""

from __future__ import annotations

import gzip
import re
import secrets
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers
from django.utils.text import StreamingBuffer
from typing_extensions import override

_GZIP_LEVEL = 6
#: `gzip` in Accept-Encoding, and not with the weight 0, which refuses it.
_ACCEPTS_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")


def accepts_gzip(request: HttpRequest) -> bool:
    """Return whether the client accepts responses with gzip."""
    return bool(_ACCEPTS_GZIP.search(request.headers.get("Accept-Encoding", "")))


class CompressionMiddleware(GZipMiddleware):
    """Compress responses of at least 200 bytes.

    Django's middleware adds up to 100 random bytes, so that the size of a response does not reveal a secret in it
    (BREACH). It makes a gzip file of every chunk of a streaming response, of which browsers read the first one only, so
    such responses are compressed here, as one file.
    """

    @override
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response, compressed if the client accepts it."""
        if not accepts_gzip(request):
            # A header that refuses gzip names it, too.
            request.META.pop("HTTP_ACCEPT_ENCODING", None)
        is_async_stream = isinstance(response, StreamingHttpResponse) and response.is_async
        if not is_async_stream or not accepts_gzip(request) or response.has_header("Content-Encoding"):
            return super().process_response(request, response)
        chunks: Any = response.streaming_content  # type: ignore[attr-defined]
        # Without "Content-Encoding", Django's middleware would compress each chunk.
        response.headers["Content-Encoding"] = "gzip"
        patch_vary_headers(response, ["Accept-Encoding"])
        del response.headers["Content-Length"]
        response.streaming_content = _compress_chunks(chunks, self.max_random_bytes)  # type: ignore[attr-defined]
        return response


async def _compress_chunks(chunks: AsyncIterator[bytes], max_random_bytes: int) -> AsyncIterator[bytes]:
    """Yield the chunks as one gzip file. Chunks are compressed in a thread: one may be half a megabyte."""
    buffer = StreamingBuffer()
    # The name in the header is the padding. Without a time of modification, equal content has equal bytes.
    padding = "a" * secrets.randbelow(max_random_bytes)
    file = gzip.GzipFile(padding, "wb", _GZIP_LEVEL, buffer, mtime=0)
    compress = sync_to_async(file.write, thread_sensitive=False)
    async for chunk in chunks:
        await compress(chunk)
        if compressed := buffer.read():
            yield compressed
    await sync_to_async(file.close, thread_sensitive=False)()
    yield buffer.read()
