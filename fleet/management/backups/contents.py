"""What an archive has beside the database: settings, and with secrets the secret key and the TLS files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fleet.management.backups.archive import copy_private
from fleet.management.doctor.redaction import Redactor, is_secret_name
from fleet.processes import folders
from fleet.transport.tls import TLSFiles

SETTINGS_MEMBER = "settings.json"
KEY_MEMBER = "secret_key"
#: Names of members with TLS files, by part.
_FILE_NAMES = {"authority": "ca", "certificate": "certificate", "key": "key", "identity": "identity"}
#: Settings that say where an installation is.
_LOCAL_NAMES = frozenset({"REFLOAT_HOME"})


def select_settings(
    environment: Mapping[str, str], known_names: Iterable[str], redactor: Redactor, *, with_secrets: bool
) -> dict[str, str]:
    """Return the settings of an archive: those of the environment; without secrets those without any secret in them."""
    names = frozenset(known_names)
    selected = {
        name: value
        for name, value in sorted(environment.items())
        if _setting_name(name) in names - _LOCAL_NAMES
    }
    if with_secrets:
        return selected
    return {
        name: value
        for name, value in selected.items()
        if not is_secret_name(name) and redactor.redact(value) == value
    }


def write_settings(folder: Path, settings: Mapping[str, str]) -> dict[str, Path]:
    """Write the member with the settings, and return its path by name. Raises OSError."""
    path = folder / SETTINGS_MEMBER
    folders.write_private_file(path, f"{json.dumps(settings, indent=1)}\n")
    return {SETTINGS_MEMBER: path}


def write_secrets(
    folder: Path, secret_key: str, tls: TLSFiles, cluster_files: Mapping[str, Path]
) -> dict[str, Path]:
    """Write the members with secrets, and return their paths by name. Raises OSError if a TLS file cannot be read.

    `tls`: the files of the settings. `cluster_files`: those of clusters, by name of the member.
    """
    key_path = folder / KEY_MEMBER
    folders.write_private_file(key_path, secret_key)
    paths = {KEY_MEMBER: key_path}
    for name, source in (*_tls_members(tls), *cluster_files.items()):
        target = folder / name
        folders.create_private_folder(target.parent)
        copy_private(source, target)
        paths[name] = target
    return paths


def list_different_settings(settings_path: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the names of settings of an archive that are not set, or not the same, in the environment."""
    try:
        stored = json.loads(settings_path.read_text())
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(stored, dict):
        return []
    return sorted(name for name, value in stored.items() if environment.get(name) != value)


def name_cluster_files(paths_by_cluster: Mapping[str, Mapping[str, str]]) -> dict[str, Path]:
    """Return the TLS files of clusters by name of their member. `paths_by_cluster`: paths by part, as in rows."""
    return {
        f"tls/{cluster}-{_FILE_NAMES[part]}.pem": Path(path)
        for cluster, paths in sorted(paths_by_cluster.items())
        for part, path in sorted(paths.items())
    }


def _tls_members(tls: TLSFiles) -> Iterator[tuple[str, Path]]:
    for part, path in (("authority", tls.authority), ("certificate", tls.certificate), ("key", tls.key)):
        if path is not None:
            yield f"tls/{_FILE_NAMES[part]}.pem", path


def _setting_name(variable: str) -> str:
    """Return the setting that a variable sets: `NAME_FILE` has the path of a file with the value of NAME."""
    return variable.removesuffix("_FILE")
