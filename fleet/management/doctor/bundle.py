"""The support bundle of `refloat doctor`: a zip file for the people who help, without secrets."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleet.management.doctor.redaction import Redactor
from fleet.management.doctor.report import format_json

#: Lines of each log in the bundle, and the most bytes that are read of each log.
LOG_LINES = 200
_LOG_BYTES = 1024 * 1024
#: Fields of INFO in the bundle: none of them has addresses or names.
_REDIS_FIELDS = (
    *("redis_version", "valkey_version", "server_name", "redis_mode", "os", "uptime_in_seconds", "role"),
    *("connected_clients", "blocked_clients", "maxclients", "rejected_connections"),
    *("used_memory", "used_memory_peak", "used_memory_rss", "maxmemory", "maxmemory_policy", "evicted_keys"),
    *("mem_fragmentation_ratio", "instantaneous_ops_per_sec", "total_error_replies", "loading"),
    *("aof_enabled", "aof_last_write_status", "rdb_last_bgsave_status", "rdb_last_save_time"),
    *("expired_keys", "connected_slaves", "cluster_enabled"),
)
_CONTENTS = """\
Support bundle of Refloat

findings.json  what `refloat doctor` found, with the versions of Refloat, Python, packages, database and Redis
settings.json  environment variables of Refloat; secrets and values of unknown names are replaced by [redacted]
redis.json     some fields of INFO of Redis or Valkey; empty if it does not respond
log/           the last {lines} lines of each log in REFLOAT_HOME/log

Secrets are replaced by [redacted]: values of settings and channels, passwords and query strings in URLs, tokens,
private keys. Names of instances, agents and hosts, and IP addresses, stay. Read the files before you send them.
"""


def write_bundle(
    path: Path,
    report: Mapping[str, Any],
    settings: Mapping[str, str],
    redis_fields: Mapping[str, Any],
    log_folder: Path,
    redactor: Redactor,
) -> None:
    """Write the bundle with mode 0600. Raises OSError, and FileExistsError if the file exists.

    `settings` are redacted already; everything else is redacted here.
    """
    text_by_name = {
        "README.txt": _CONTENTS.format(lines=LOG_LINES),
        "findings.json": format_json(redactor.redact_document(report)),
        "settings.json": format_json(settings),
        "redis.json": format_json(redactor.redact_document(select_redis_fields(redis_fields))),
        **{
            # First redacted, then cut: a secret of several lines may begin before the last lines.
            f"log/{name}": keep_last_lines(redactor.redact(text))
            for name, text in _read_logs(log_folder)
        },
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in text_by_name.items():
            archive.writestr(name, text)
    # Never through a link, and never into the file of another user.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(buffer.getvalue())


def select_redis_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of INFO that the bundle has."""
    return {name: fields[name] for name in _REDIS_FIELDS if name in fields}


def keep_last_lines(text: str) -> str:
    """Return the lines of a log that the bundle has."""
    return "\n".join([*text.splitlines()[-LOG_LINES:], ""])


def _read_logs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the end of each log; links are left out, because they may lead anywhere."""
    for path in sorted(folder.glob("*.log")):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            yield path.name, _read_end(path)
        except OSError as error:
            yield path.name, f"cannot be read: {error.strerror}"


def _read_end(path: Path) -> str:
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES)
        file.seek(start)
        text = file.read().decode(errors="replace")
    # The first line may have lost its beginning, and with it the name beside a secret.
    return text.partition("\n")[2] if start else text
