"""Static files: names with a content hash, compressed once, served from memory. docs/how-to/run-in-production.md.

The hash is part of the folder: `/static/0a1b2c3d4e5f6071/dashboards/js/map.js`. It covers all files of the folder
`dashboards`. So modules that import each other by relative names always come from one release, without a script that
rewrites imports, and a browser keeps them for a year. Nothing is collected or written: the console runs from installed
packages, and no step of an upgrade can be forgotten.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import mimetypes
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from django.utils.http import parse_etags
from typing_extensions import override

from dashboards.compression import accepts_gzip

#: Only a content hash in the URL makes this safe: the content of such a URL never changes.
_IMMUTABLE = "public, max-age=31536000, immutable"
#: A URL without the hash: the browser asks each time, and gets 304 while the file is the same.
_REVALIDATE = "public, no-cache"
#: A URL with the hash of another release, while an upgrade runs: this release's file, which is not kept.
_NO_STORE = "no-store"
#: Characters of SHA-256 in a URL: 64 bits.
_HASH_LENGTH = 16
#: Compressed files of less than this share of the original are sent compressed; images are not.
_WORTHWHILE_RATIO = 0.95
#: Maps are for debuggers, and as large as the scripts.
_IGNORED_PATTERNS = ["*.map"]


class Asset:
    """One file, as it was when its folder was hashed. Memory holds the compressed content only, once it was sent."""

    def __init__(self, name: str, content: bytes) -> None:
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        is_text = media_type.startswith("text/") or media_type in {"application/json", "image/svg+xml"}
        self.content_type = f"{media_type}; charset=utf-8" if is_text else media_type
        self.etag = f'W/"{_hash_of(content)}"'
        self._content: bytes | None = content
        self._gzipped: bytes | None = None
        self._lock = threading.Lock()

    def encode(self, *, accepts_gzip: bool) -> tuple[bytes, bool]:
        """Return the body, and whether it is compressed. The first call compresses, up to 0.2 s for 5 MB."""
        with self._lock:
            if self._gzipped is None and self._content is not None:
                # Without a time of modification, all processes send equal bytes.
                gzipped = gzip.compress(self._content, mtime=0)
                if len(gzipped) < _WORTHWHILE_RATIO * len(self._content):
                    self._content, self._gzipped = None, gzipped
        if self._gzipped is None:
            return self._content or b"", False
        # Every browser accepts gzip. A client that does not is worth the time of decompressing, not the memory.
        return (self._gzipped, True) if accepts_gzip else (gzip.decompress(self._gzipped), False)


class AssetFolder(NamedTuple):
    """The files of one top-level folder, and the hash of all their names and contents."""

    content_hash: str
    assets: Mapping[str, Asset]


class StaticAssets:
    """All static files that the finders of the settings find."""

    def __init__(self) -> None:
        self._paths_by_folder: dict[str, dict[str, Path]] = {}
        for finder in finders.get_finders():
            for path, storage in finder.list(_IGNORED_PATTERNS):
                prefix = getattr(storage, "prefix", None)
                name = f"{prefix}/{path}" if prefix else path
                # As in Django: the first finder wins.
                self._paths_by_folder.setdefault(_folder_of(name), {}).setdefault(
                    name, Path(storage.path(path))
                )
        self._folders: dict[str, AssetFolder] = {}
        self._lock = threading.Lock()

    def folder(self, name: str) -> AssetFolder | None:
        """Return the folder with this name, read when it is first needed; None if there is none.

        With REFLOAT_DEBUG, files are read again each time, so that a reload shows a change.
        """
        paths = self._paths_by_folder.get(name)
        if paths is None:
            return None
        with self._lock:
            folder = self._folders.get(name)
            if folder is None or settings.DEBUG:
                folder = self._folders[name] = _read_folder(paths)
            return folder

    def hashed_name(self, name: str) -> str:
        """Return the name with the hash of its folder in front. Raises ValueError if there is no such file."""
        folder = self.folder(_folder_of(name))
        if folder is None or name not in folder.assets:
            raise ValueError(f"The static file {name!r} was not found.")
        return f"{folder.content_hash}/{name}"

    def find(self, path: str) -> tuple[Asset, str] | None:
        """Return the asset at `path`, below STATIC_URL, and its Cache-Control; None if there is none."""
        content_hash, _, name = path.partition("/")
        if _is_hash(content_hash):
            folder = self.folder(_folder_of(name))
            asset = folder.assets.get(name) if folder else None
            if folder is None or asset is None:
                return None
            return asset, _IMMUTABLE if content_hash == folder.content_hash else _NO_STORE
        folder = self.folder(_folder_of(path))
        asset = folder.assets.get(path) if folder else None
        return None if asset is None else (asset, _REVALIDATE)


@functools.cache
def static_assets() -> StaticAssets:
    """Return the static files of this process."""
    return StaticAssets()


class HashedStorage(StaticFilesStorage):
    """The storage behind `{% static %}`."""

    @override
    def url(self, name: str | None) -> str:
        """Return the URL of a static file, with its content hash. Raises ValueError if there is no such file."""
        return super().url(static_assets().hashed_name(name or ""))


@sync_and_async_middleware
def serve_static_assets(get_response: Any) -> Any:
    """Answer requests for static files, and pass on all others."""
    if iscoroutinefunction(get_response):
        get_response_async = cast("Callable[[HttpRequest], Awaitable[HttpResponseBase]]", get_response)

        async def async_middleware(request: HttpRequest) -> HttpResponseBase:
            if not _is_for_static(request):
                return await get_response_async(request)
            # In a thread: the first request for a file compresses it.
            response = await asyncio.to_thread(_respond, request)
            return response or await get_response_async(request)

        return async_middleware

    def sync_middleware(request: HttpRequest) -> HttpResponseBase:
        response = _respond(request) if _is_for_static(request) else None
        return response or cast("HttpResponseBase", get_response(request))

    return sync_middleware


def _is_for_static(request: HttpRequest) -> bool:
    return request.method in {"GET", "HEAD"} and request.path_info.startswith(settings.STATIC_URL)


def _respond(request: HttpRequest) -> HttpResponse | None:
    """Return the response with a static file; None if there is no such file."""
    found_asset = static_assets().find(request.path_info.removeprefix(settings.STATIC_URL))
    if found_asset is None:
        return None
    asset, cache_control = found_asset
    response: HttpResponse
    if asset.etag in parse_etags(request.headers.get("If-None-Match", "")):
        response = HttpResponseNotModified()
    else:
        body, is_gzipped = asset.encode(accepts_gzip=accepts_gzip(request))
        response = HttpResponse(body, content_type=asset.content_type)
        response["Content-Length"] = len(body)
        if is_gzipped:
            response["Content-Encoding"] = "gzip"
    response["Cache-Control"] = cache_control
    response["ETag"] = asset.etag
    patch_vary_headers(response, ["Accept-Encoding"])
    return response


def _read_folder(paths: Mapping[str, Path]) -> AssetFolder:
    digest = hashlib.sha256()
    assets = {}
    for name in sorted(paths):
        asset = Asset(name, paths[name].read_bytes())
        digest.update(f"{name}\0{asset.etag}\0".encode())
        assets[name] = asset
    return AssetFolder(digest.hexdigest()[:_HASH_LENGTH], assets)


def _hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]


def _folder_of(name: str) -> str:
    folder, separator, _ = name.partition("/")
    return folder if separator else ""


def _is_hash(text: str) -> bool:
    return len(text) == _HASH_LENGTH and all(character in "0123456789abcdef" for character in text)
