"""TLS of nodes and their clients: the files, the names in certificates, and gRPC's credentials.

Certificates are issued in `certificate_authority.py`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

#: Every server's certificate names this host too.
SERVER_NAME = "refloat.local"
#: Roles of servers. Certificates of all other roles are good for clients only.
SERVER_ROLES = ("auth", "proxy", "gateway")
#: What Teleport's clients ask servers for, whatever address they dial (api/constants, `APIDomain`); with a label in
#: front where they mean one cluster.
TELEPORT_NAMES = ("teleport.cluster.local", "*.teleport.cluster.local")


def role_name(role: str) -> str:
    """Return the host that every certificate of a role of servers names, and none of another role."""
    return f"{role}.{SERVER_NAME}"


#: The certificates of auths alone name this host, so that a proxy cannot answer in the place of an auth.
AUTH_NAME = role_name("auth")
#: Names that many certificates have: they do not tell one program from another.
SHARED_NAMES = frozenset((SERVER_NAME, "localhost", *TELEPORT_NAMES, *map(role_name, SERVER_ROLES)))


class TLSError(Exception):
    """A key or certificate that cannot be used; the sentence names the file."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """PEM files; an own certificate and key make it mutual on the client's side, a CA on the server's."""

    certificate: Path | None = None
    key: Path | None = None
    #: Whom we trust.
    authority: Path | None = None
    #: A client expects this name in the server's certificate; empty means the name of the role that it dials, and the
    #: host where servers have no role of ours.
    server_name: str = ""
    #: The same of an auth's certificate; empty means as `server_name`.
    auth_name: str = ""

    @property
    def enabled(self) -> bool:
        """Whether TLS is on at all."""
        return any((self.certificate, self.key, self.authority))

    def for_role(self, role: str) -> TLSFiles:
        """Return the same for connections to servers of a role, whose certificates must prove it."""
        by_role = self.auth_name if role == "auth" else ""
        return replace(self, server_name=by_role or self.server_name or role_name(role))


def server_credentials(tls: TLSFiles) -> grpc.ServerCredentials:
    """Credentials of a server; with an authority it demands a client's certificate. Raises TLSError."""
    if tls.certificate is None or tls.key is None:
        raise TLSError("a server with TLS needs a certificate and its key")
    check_files(tls)
    authority = _read(tls.authority)
    pair = (_must_read(tls.key), _must_read(tls.certificate))
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def channel_credentials(tls: TLSFiles) -> grpc.ChannelCredentials:
    """Credentials of a client; with a certificate it shows itself. Raises TLSError."""
    if (tls.certificate is None) != (tls.key is None):
        raise TLSError("a certificate and its key go together")
    check_files(tls)
    return grpc.ssl_channel_credentials(_read(tls.authority), _read(tls.key), _read(tls.certificate))


def check_files(tls: TLSFiles) -> None:
    """Raise TLSError for files that are no PEM or do not belong together: gRPC would take them, and reach nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if tls.certificate is not None and tls.key is not None:
            file_names = f"{tls.certificate} and {tls.key}"
            context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        if tls.authority is not None:
            file_names = str(tls.authority)
            context.load_verify_locations(tls.authority)
    except ssl.SSLError as error:
        raise TLSError(f"{file_names} cannot be used: {_reason(error)}") from error
    except OSError as error:
        raise TLSError(f"{file_names} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """Without it OpenSSL would ask for the password of a locked key on the terminal."""
    return ""


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _read(path: Path | None) -> bytes | None:
    return None if path is None else _must_read(path)


def _must_read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TLSError(f"{path} cannot be read: {error.strerror}") from error
