"""Checks of REFLOAT_HOME: the folder, its key, file modes, owners, and free disk space."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.management.doctor.findings import CheckFinding, error, ok, warning

#: Files in REFLOAT_HOME with secrets or password hashes.
_PRIVATE_FILES = (
    *("secret_key", "refloat.sqlite3", "refloat.sqlite3-wal", "demo.json"),
    *("valkey/password", "valkey/address.json", "valkey/valkey.conf"),
)
_MEBIBYTE = 1024 * 1024
#: MiB from which a size is shown in GiB.
_GIBIBYTES_FROM = 10 * 1024
#: Free disk space below which Refloat may stop soon, and below which to act, bytes.
MIN_FREE_BYTES = 200 * _MEBIBYTE
RECOMMENDED_FREE_BYTES = 1024 * _MEBIBYTE


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Mode and owner of a file or folder."""

    path: Path
    mode: int
    user_id: int

    @property
    def is_folder(self) -> bool:
        """Return whether it is a folder."""
        return stat.S_ISDIR(self.mode)


def check_home(
    home: Path, key_files: Iterable[Path], *, is_key_configured: bool, has_database: bool
) -> Iterator[CheckFinding]:
    """Yield the findings of REFLOAT_HOME.

    `key_files`: other files with secrets. `is_key_configured`: REFLOAT_SECRET_KEY or its file is set. `has_database`:
    the database exists.
    """
    if not home.is_dir():
        yield error(
            "home-folder",
            f"REFLOAT_HOME={home} does not exist.",
            "Run `refloat prepare`, which creates it, or correct REFLOAT_HOME.",
        )
        return
    yield _check_access(home)
    yield check_secret_key(
        has_key=is_key_configured or (home / "secret_key").exists(),
        has_database=has_database,
        home=home,
    )
    paths = [home, *(home / name for name in _PRIVATE_FILES)]
    facts = list(_read_file_facts([*paths, *key_files]))
    yield from check_modes(facts)
    yield from check_owners([file for file in facts if file.path in paths], os.geteuid())
    yield from check_disk_space(home, shutil.disk_usage(home).free)


def _check_access(home: Path) -> CheckFinding:
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return error(
            "home-folder",
            f"REFLOAT_HOME={home} is not writable for the user {_user_name(os.geteuid())}.",
            f"Run Refloat as the owner of the folder, {_user_name(home.stat().st_uid)}, or change the owner.",
        )
    return ok("home-folder", f"REFLOAT_HOME={home} is writable.")


def check_secret_key(*, has_key: bool, has_database: bool, home: Path) -> CheckFinding:
    """Return whether the key that signs sessions and seals secrets exists."""
    if has_key:
        return ok("secret-key", "The secret key exists.")
    if not has_database:
        return ok("secret-key", "There is no secret key yet: the first start creates one.")
    return error(
        "secret-key",
        f"{home / 'secret_key'} is missing: sessions and channel secrets cannot be read.",
        "Restore the file from the backup. Without a backup, a start creates a new key: "
        "then enter the secrets of all channels again.",
    )


def check_modes(files: Iterable[FileFacts]) -> Iterator[CheckFinding]:
    """Yield an error for each file that others can read, and a warning for folders and for groups.

    `files`: REFLOAT_HOME first. A file below it is a warning only, if others cannot open the folder.
    """
    has_problem = False
    home, *_ = files = list(files)
    is_home_closed = not stat.S_IMODE(home.mode) & 0o077
    for file in files:
        mode = stat.S_IMODE(file.mode)
        if not mode & 0o077:
            continue
        has_problem = True
        is_open_to_others = bool(mode & 0o007)
        readers = "all users of this machine" if is_open_to_others else "its group"
        is_behind_home = is_home_closed and file.path.is_relative_to(home.path)
        create = error if is_open_to_others and not file.is_folder and not is_behind_home else warning
        effect = (
            f"a copy of it outside {home.path} can be opened by {readers}"
            if is_behind_home
            else f"{readers} can open it"
        )
        yield create(
            "file-modes",
            f"{file.path} has the mode {mode:04o}: {effect}.",
            f"Run `chmod {'700' if file.is_folder else '600'} {file.path}`.",
        )
    if not has_problem:
        yield ok("file-modes", "Only their owner can read the files with secrets.")


def check_owners(files: Iterable[FileFacts], user_id: int) -> Iterator[CheckFinding]:
    """Yield an error for each file whose owner is not that of REFLOAT_HOME, the first of `files`.

    `user_id`: of this process. It should be the user that runs the console.
    """
    home, *contents = files
    owner = _user_name(home.user_id)
    foreign_files = [file for file in contents if file.user_id != home.user_id]
    for file in foreign_files:
        yield error(
            "file-owners",
            f"{file.path} belongs to {_user_name(file.user_id)}, but REFLOAT_HOME belongs to {owner}.",
            f"Run `chown {owner} {file.path}`, and run commands of Refloat as {owner} only.",
        )
    if foreign_files:
        return
    if user_id != home.user_id:
        yield warning(
            "file-owners",
            f"This command runs as {_user_name(user_id)}, but REFLOAT_HOME belongs to {owner}.",
            f"Run it as {owner}, the user of the console: other users may see other results.",
        )
        return
    yield ok("file-owners", f"All files belong to {owner}.")


def check_disk_space(
    folder: Path,
    free_bytes: int,
    min_bytes: int = MIN_FREE_BYTES,
    recommended_bytes: int = RECOMMENDED_FREE_BYTES,
) -> Iterator[CheckFinding]:
    """Yield the finding of the free space of the file system of `folder`."""
    mebibytes = free_bytes / _MEBIBYTE
    space = f"{mebibytes / 1024:,.0f} GiB" if mebibytes >= _GIBIBYTES_FROM else f"{mebibytes:,.0f} MiB"
    summary = f"{space} are free on the file system of {folder}"
    remedy = "Free disk space, or shorten the history with REFLOAT_HISTORY_DAYS."
    if free_bytes < min_bytes:
        yield error("disk-space", f"Only {summary}: writes to the database will fail soon.", remedy)
    elif free_bytes < recommended_bytes:
        yield warning("disk-space", f"Only {summary}.", remedy)
    else:
        yield ok("disk-space", f"{summary}.")


def _read_file_facts(paths: Iterable[Path]) -> Iterator[FileFacts]:
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        yield FileFacts(path, status.st_mode, status.st_uid)


def _user_name(user_id: int) -> str:
    """Return the name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
