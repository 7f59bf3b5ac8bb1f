"""TLS of instances and their clients: files, names in certificates, and gRPC credentials.

`certificate_authority.py` issues certificates.
"""

from __future__ import annotations

import ssl
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import grpc

from fleet.transport.client_identity import ClientIdentity, IdentityFileError
from fleet.vocabulary.clusters import TELEPORT_SERVER_NAME

#: Host name that the certificates of all roles of servers have.
SERVER_NAME = "refloat.local"
#: Roles of servers. Certificates of other roles are valid for clients only.
SERVER_ROLES = ("auth", "proxy", "gateway")
#: Names that Teleport's clients expect; with a label in front for a specific cluster.
TELEPORT_NAMES = (TELEPORT_SERVER_NAME, f"*.{TELEPORT_SERVER_NAME}")


def server_name_of(role: str) -> str:
    """Return the host name that only certificates of this role of servers have."""
    return f"{role}.{SERVER_NAME}"


#: Only certificates of auths have this name, so that a proxy cannot act as an auth.
AUTH_SERVER_NAME = server_name_of("auth")
#: Names that many certificates have: they do not identify a program.
SHARED_NAMES = frozenset((SERVER_NAME, "localhost", *TELEPORT_NAMES, *map(server_name_of, SERVER_ROLES)))


class TLSError(Exception):
    """A key or certificate that cannot be used; the message names the file."""


class IdentityError(TLSError):
    """An identity file that cannot be used. `problem` names the file, `remedy` says what to do; no full stops."""

    def __init__(self, path: Path, error: IdentityFileError) -> None:
        problem, _, self.remedy = str(error).partition(". ")
        # The path of an uploaded file tells people nothing.
        name = "(uploaded)" if path.parts[:3] == ("/", "proc", "self") else path
        self.problem = f"cannot use identity file {name}: {problem[:1].lower()}{problem[1:]}"
        super().__init__(f"{self.problem}. {self.remedy}".removesuffix(". "))


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """PEM files. For mutual TLS, a client needs a certificate and key, and a server a CA."""

    certificate: Path | None = None
    key: Path | None = None
    #: CA that signs the certificates of trusted peers.
    authority: Path | None = None
    #: Name that a client expects in the server's certificate; empty means the name of the role that it dials, or the
    #: host for servers without a role of Refloat.
    server_name: str = ""
    #: The same for an auth's certificate; empty means `server_name`.
    auth_name: str = ""
    #: Why the files cannot be used, the message of the TLSError that each connection raises; empty: perhaps they can.
    problem: str = ""
    #: Keeps the files open that exist only in memory.
    content: object = field(default=None, compare=False, repr=False)

    @property
    def enabled(self) -> bool:
        """Return whether any file is set or missing, which turns TLS on."""
        return any((self.certificate, self.key, self.authority, self.problem))

    @property
    def identity(self) -> Path | None:
        """The identity file of Teleport that is CA, certificate and key at once; None without one."""
        is_one_file = self.authority is not None and self.authority == self.certificate == self.key
        return self.authority if is_one_file else None

    def for_role(self, role: str) -> TLSFiles:
        """Return the files for connections to servers of a role, whose certificates must have its name."""
        auth_name = self.auth_name if role == "auth" else ""
        return replace(self, server_name=auth_name or self.server_name or server_name_of(role))


def server_credentials(tls: TLSFiles) -> grpc.ServerCredentials:
    """Return the credentials of a server; with a CA it requires client certificates. Raises TLSError."""
    if tls.certificate is None or tls.key is None:
        raise TLSError("a server with TLS needs a certificate and its key: set both --tls-cert and --tls-key")
    check_files(tls)
    authority = _read(tls.authority)
    pair = (_must_read(tls.key), _must_read(tls.certificate))
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def channel_credentials(tls: TLSFiles) -> grpc.ChannelCredentials:
    """Return the credentials of a client, with its certificate if set. Raises TLSError."""
    if (tls.certificate is None) != (tls.key is None):
        raise TLSError("set both --tls-cert and --tls-key, or neither")
    check_files(tls)
    if tls.identity is not None:
        identity = read_identity(tls.identity, datetime.now(UTC))
        return grpc.ssl_channel_credentials(identity.authorities, identity.private_key, identity.certificate)
    return grpc.ssl_channel_credentials(_read(tls.authority), _read(tls.key), _read(tls.certificate))


def client_context(tls: TLSFiles) -> ssl.SSLContext | None:
    """Return the TLS context of a client that is not gRPC's; None without TLS. Raises TLSError."""
    if not tls.enabled:
        return None
    # OpenSSL does not say which file is wrong.
    check_files(tls)
    try:
        if tls.identity is None:
            context = ssl.create_default_context(cafile=tls.authority)
        else:
            identity = read_identity(tls.identity, datetime.now(UTC))
            context = ssl.create_default_context(cadata=identity.authorities.decode("ascii"))
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise TLSError(f"cannot use the TLS files: {error}") from error
    return context


def read_identity(path: Path, now: datetime) -> ClientIdentity:
    """Return the identity in an identity file of Teleport. Raises TLSError; IdentityError for its content."""
    # Here: it loads the package cryptography, and `refloat connect` starts for each SSH session.
    from fleet.transport.identity_file import parse_identity_file

    try:
        return parse_identity_file(_must_read(path), now=now)
    except IdentityFileError as error:
        raise IdentityError(path, error) from error


def version_of(tls: TLSFiles | None) -> Hashable:
    """Return a value that changes when the files change, by their metadata: connections then have to be made anew."""
    paths = () if tls is None else (tls.authority, tls.certificate, tls.key)
    return tls, tuple(_file_version_of(path) for path in paths if path is not None)


def check_files(tls: TLSFiles) -> None:
    """Raise TLSError for files that are not PEM or do not match: gRPC would accept them, and fail to connect."""
    if tls.problem:
        raise TLSError(tls.problem)
    if tls.identity is not None:
        read_identity(tls.identity, datetime.now(UTC))
        return
    if tls.certificate is not None and tls.key is not None:
        certificate, key = _must_read(tls.certificate), _must_read(tls.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        except (OSError, ValueError) as error:
            if not _is_certificate(certificate):
                raise TLSError(f"cannot use certificate {tls.certificate}: not a PEM certificate") from error
            if b"ENCRYPTED" in key:
                raise TLSError(
                    f"cannot use key {tls.key}: it is encrypted. Use a key without a passphrase"
                ) from error
            if not isinstance(error, ssl.SSLError) or error.reason is None:
                raise TLSError(f"cannot use key {tls.key}: not a PEM private key") from error
            reason = error.reason.lower().replace("_", " ")
            raise TLSError(
                f"cannot use certificate {tls.certificate} with key {tls.key}: {reason}"
            ) from error
    if tls.authority is not None and not _is_certificate(_must_read(tls.authority)):
        raise TLSError(f"cannot use CA {tls.authority}: not a PEM certificate")


def _file_version_of(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _is_certificate(pem: bytes) -> bool:
    """Return whether OpenSSL can read certificates from the content of a file; its own errors do not name the file."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        return False
    return True


def _no_password() -> str:
    """Return no password; otherwise OpenSSL would ask for the one of an encrypted key on the terminal."""
    return ""


def _read(path: Path | None) -> bytes | None:
    return None if path is None else _must_read(path)


def _must_read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TLSError(f"cannot read {path}: {error.strerror}") from error
