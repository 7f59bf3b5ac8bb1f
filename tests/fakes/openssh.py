"""OpenSSH on this machine: an sshd with keys and configuration of its own, and `ssh -R` to it.

Nothing of the machine's configuration is read: no user file, no system file, no agent.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.processes import valkey
from tests.fakes.programs import Peer, run_program

#: sshd must be started by its absolute path, and is on few people's PATH.
_SSHD = "/usr/sbin/sshd"


def missing_reason() -> str:
    """Return why OpenSSH is missing, as a sentence; empty when it is installed."""
    absent = [
        name for name, path in (("ssh", shutil.which("ssh")), ("sshd", _is_installed(_SSHD))) if not path
    ]
    if not absent:
        return ""
    return f"OPENSSH IS MISSING ({', '.join(absent)}): run `make peers` as root, or apt-get install openssh-server"


def _is_installed(path: str) -> bool:
    return os.access(path, os.X_OK)


@dataclass(frozen=True, slots=True)
class Sshd:
    """A server that lets us in by key, as whoever runs the tests."""

    peer: Peer
    port: int
    identity: Path
    known_hosts: Path

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def ssh(self, *args: str, proxy_command: str = "") -> list[str]:
        """Return an ssh command line to this server; the arguments are flags, the host and a command."""
        return ["ssh", *self._flags(proxy_command), "-p", str(self.port), *args]

    def scp(self, *args: str, proxy_command: str = "") -> list[str]:
        """Return an scp command line to this server; the arguments are flags, a source and a target."""
        return ["scp", *self._flags(proxy_command), "-P", str(self.port), *args]

    def _flags(self, proxy_command: str) -> list[str]:
        options = {
            "BatchMode": "yes",
            "IdentityFile": str(self.identity),
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "HostKeyAlias": "peer",
            "LogLevel": "INFO",
        }
        if proxy_command:
            options["ProxyCommand"] = proxy_command
        return [
            "-F",
            "none",
            *(flag for name, value in options.items() for flag in ("-o", f"{name}={value}")),
        ]

    @property
    def host(self) -> str:
        """The destination word."""
        return f"{getpass.getuser()}@127.0.0.1"


def _generate_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Run an sshd on a free port of 127.0.0.1."""
    host_key, identity = folder / "host_key", folder / "identity"
    _generate_key(host_key)
    _generate_key(identity)
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(f"peer {host_key.with_suffix('.pub').read_text()}")
    shutil.copy(identity.with_suffix(".pub"), folder / "authorized_keys")
    if os.geteuid() == 0:
        # What the system's start script makes, and sshd insists on when it runs as root.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = valkey.find_free_port()
    config = folder / "sshd_config"
    config.write_text(_config(folder, host_key, port))
    argv = [_SSHD, "-D", "-e", "-f", str(config)]
    with run_program("sshd", argv, folder) as peer:
        peer.await_output("Server listening on")
        yield Sshd(peer, port, identity, known_hosts)


def _config(folder: Path, host_key: Path, port: int) -> str:
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": host_key,
        "PidFile": "none",
        "AuthorizedKeysFile": folder / "authorized_keys",
        # The folder may lie below one that others may write to.
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "MaxStartups": 200,
        "PrintMotd": "no",
        "Subsystem": "sftp internal-sftp",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


@contextlib.contextmanager
def reverse_forward(
    server: Sshd, folder: Path, target: str, flags: Sequence[str] = ()
) -> Iterator[tuple[Peer, str]]:
    """Run `ssh -R`: sshd listens where the yielded address says, and ssh dials `target` for each connection."""
    argv = server.ssh(
        "-N", "-o", "ExitOnForwardFailure=yes", *flags, "-R", f"127.0.0.1:0:{target}", server.host
    )
    with run_program("ssh-R", argv, folder) as peer:
        port = peer.await_output(r"Allocated port (\d+) for remote forward").group(1)
        yield peer, f"127.0.0.1:{port}"
