"""Files of Prometheus' file_sd: a list of groups of targets, as JSON or YAML, read again when they change.

Format: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config. As in Prometheus, an
unknown key makes the file invalid; labels are accepted and not used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fleet.clusters.address_entries import AddressEntryError, format_address, parse_address
from fleet.protocol import strict_yaml

#: Bytes of a file.
_LONGEST_FILE = strict_yaml.LONGEST
#: Files that one pattern with a * may match.
_MOST_FILES = 20
_GROUP_KEYS = {"targets", "labels"}


class FileSDError(Exception):
    """A file that cannot be used; the message says why, without the path."""


class FileProblem(NamedTuple):
    """What is wrong with a file, and what to do: two sentences."""

    text: str
    remedy: str


class _Signature(NamedTuple):
    """Values that change when a file is written or replaced."""

    modified_ns: int
    size: int
    inode: int
    device: int


@dataclass(frozen=True, slots=True)
class _ReadFile:
    signature: _Signature | None
    addresses: tuple[str, ...]
    problem: FileProblem | None


class FileReader:
    """Reads files when they have changed. The last valid content of a file remains when a later one is not valid."""

    def __init__(self) -> None:
        self._files_by_pattern: dict[str, dict[Path, _ReadFile]] = {}

    def read(self, pattern: str) -> tuple[list[str], list[FileProblem]]:
        """Return the addresses of the files that match a path or pattern, in order of their names, and the problems."""
        previous_files = self._files_by_pattern.get(pattern, {})
        files = {path: _read_file(path, previous_files.get(path)) for path in _find_paths(pattern)}
        self._files_by_pattern[pattern] = files
        addresses = [address for file in files.values() for address in file.addresses]
        problems = [file.problem for file in files.values() if file.problem is not None]
        if not files:
            problems.append(
                FileProblem(
                    f"No file matches {pattern}.",
                    "Create the file on each machine where workers run, or correct the path.",
                )
            )
        return addresses, problems


def parse_targets(name: str, content: bytes) -> tuple[str, ...]:
    """Return the addresses of a file with this name. Raises FileSDError if any part of it is not valid."""
    if len(content) > _LONGEST_FILE:
        raise FileSDError(f"it is longer than {_LONGEST_FILE} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileSDError("it is not UTF-8 text") from None
    try:
        document = json.loads(text) if name.endswith(".json") else strict_yaml.load(text)
    except json.JSONDecodeError as error:
        raise FileSDError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise FileSDError(str(error)) from None
    return tuple(dict.fromkeys(_read_groups(document)))


def _read_groups(document: Any) -> Iterator[str]:
    if not isinstance(document, list):
        raise FileSDError("it is not a list of target groups")
    for number, group in enumerate(document, start=1):
        if not isinstance(group, dict):
            raise FileSDError(f"group {number} is not a mapping with targets")
        if unknown_keys := sorted(map(str, group.keys() - _GROUP_KEYS)):
            raise FileSDError(f"group {number} has the unknown key {unknown_keys[0]!r}")
        targets, labels = group.get("targets"), group.get("labels")
        if labels is not None and not isinstance(labels, dict):
            raise FileSDError(f"labels of group {number} is not a mapping")
        if targets is None:
            continue
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise FileSDError(f"targets of group {number} is not a list of texts")
        for target in targets:
            try:
                yield format_address(*parse_address(target))
            except AddressEntryError as error:
                raise FileSDError(f"group {number}: {str(error).removesuffix('.')}") from None


def _read_file(path: Path, previous_file: _ReadFile | None) -> _ReadFile:
    signature = None
    last_addresses = () if previous_file is None else previous_file.addresses
    try:
        with path.open("rb") as file:
            # Of the opened file: between a stat of the path and its opening the file may be replaced.
            signature = _sign(file.fileno())
            if previous_file is not None and signature == previous_file.signature:
                return previous_file
            content = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return _ReadFile(
            None,
            last_addresses,
            FileProblem(
                f"{path} cannot be read: {reason}.{_describe_last(last_addresses)}",
                "Check the path and its permissions on each machine where workers run, "
                "for the user that runs the workers.",
            ),
        )
    try:
        return _ReadFile(signature, parse_targets(path.name, content), None)
    except FileSDError as error:
        return _ReadFile(
            signature,
            last_addresses,
            FileProblem(
                f"{path} is not a valid file_sd file: {error}.{_describe_last(last_addresses)}",
                'Correct the file. Its format is [{"targets": ["auth-1.example:3025"]}].',
            ),
        )


def _find_paths(pattern: str) -> list[Path]:
    path = Path(pattern)
    if "*" not in path.name:
        return [path]
    return sorted(islice(path.parent.glob(path.name), _MOST_FILES))


def _sign(descriptor: int) -> _Signature:
    status = os.fstat(descriptor)
    return _Signature(status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev)


def _describe_last(addresses: tuple[str, ...]) -> str:
    if not addresses:
        return ""
    count = "its last valid address" if len(addresses) == 1 else f"its last {len(addresses)} valid addresses"
    return f" Refloat still uses {count}."
