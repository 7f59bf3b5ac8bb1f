"""The keys and certificates of a gateway, reloaded when their files change. docs/reference/gateway.md

Files that cannot be used leave the previous certificates in effect. New connections use the new ones; open connections
continue.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fleet.nodes.shared.watched_files import WatchedFiles
from fleet.transport.http2.backend_dialer import create_client_tls_context, create_server_tls_context
from fleet.transport.tls import TLSError, TLSFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TLSContexts:
    """TLS contexts for callers and for backends; None: no TLS."""

    callers: ssl.SSLContext | None
    backends: ssl.SSLContext | None


class Certificates:
    """The TLS files, and the contexts made from them."""

    def __init__(
        self,
        callers: TLSFiles,
        backends: TLSFiles | None,
        apply: Callable[[TLSContexts], Awaitable[None]],
        report: Callable[..., None],
    ) -> None:
        """Load the files. Raises TLSError. `report(is_valid=, is_loaded=)` is called after every attempt."""
        self._callers = callers
        self._backends = backends
        self._apply = apply
        self._report = report
        sides = [callers] if backends is None else [callers, backends]
        paths = [path for side in sides for path in (side.certificate, side.key, side.authority) if path]
        self.watched_files = WatchedFiles(paths, self._reload)
        self.watched_files.record_stamps()
        self.contexts = self._read()
        #: Why the current files cannot be used; empty: they are in effect.
        self.problem = ""
        self.loaded_at = time.time()
        report(is_valid=True, is_loaded=True)

    def _read(self) -> TLSContexts:
        try:
            return TLSContexts(
                create_server_tls_context(self._callers) if self._callers.enabled else None,
                None if self._backends is None else create_client_tls_context(self._backends),
            )
        except OSError as error:
            raise TLSError(str(error)) from error

    async def _reload(self) -> None:
        try:
            self.contexts = self._read()
        except TLSError as error:
            # The certificate and its key are two files, which do not match while only one of them has been replaced.
            if str(error) != self.problem:
                log.error("cannot use the TLS files; the previous certificates stay in effect: %s", error)
            self.problem = str(error)
            self._report(is_valid=False, is_loaded=False)
            return
        await self._apply(self.contexts)
        self.problem, self.loaded_at = "", time.time()
        self._report(is_valid=True, is_loaded=True)
        log.info("the certificates were reloaded and are in effect for new connections")
