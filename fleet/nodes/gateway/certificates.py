"""The keys and certificates of a gateway, read again when their files change: those that cannot be used leave the old
ones in force. New connections have the new ones; those there are go on. docs/gateway.md
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fleet.nodes.shared.watched_files import WatchedFiles
from fleet.transport.http2.backend_dialer import client_context, server_context
from fleet.transport.tls import TLSError, TLSFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TLSContexts:
    """TLS towards callers, and towards backends; None: none."""

    callers: ssl.SSLContext | None
    backends: ssl.SSLContext | None


class Certificates:
    """The files, and what was made of them."""

    def __init__(
        self,
        callers: TLSFiles,
        backends: TLSFiles | None,
        apply: Callable[[TLSContexts], Awaitable[None]],
        report: Callable[..., None],
    ) -> None:
        """Read them. Raises TLSError. `report(valid=, loaded=)` is told of every attempt."""
        self._callers = callers
        self._backends = backends
        self._apply = apply
        self._report = report
        sides = [callers] if backends is None else [callers, backends]
        paths = [path for side in sides for path in (side.certificate, side.key, side.authority) if path]
        self.files = WatchedFiles(paths, self._reload)
        self.files.record_stamps()
        self.contexts = self._read()
        #: Why the files as they are now cannot be used; empty: they are in force.
        self.problem = ""
        self.loaded_at = time.time()
        report(valid=True, loaded=True)

    def _read(self) -> TLSContexts:
        try:
            return TLSContexts(
                server_context(self._callers) if self._callers.enabled else None,
                None if self._backends is None else client_context(self._backends),
            )
        except OSError as error:
            raise TLSError(str(error)) from error

    async def _reload(self) -> None:
        try:
            self.contexts = self._read()
        except TLSError as error:
            # A certificate and its key are two files: between them they do not fit.
            if str(error) != self.problem:
                log.error("certificates cannot be used; those before them stay in force: %s", error)
            self.problem = str(error)
            self._report(valid=False, loaded=False)
            return
        await self._apply(self.contexts)
        self.problem, self.loaded_at = "", time.time()
        self._report(valid=True, loaded=True)
        log.info("certificates were read again and are in force for new connections")
