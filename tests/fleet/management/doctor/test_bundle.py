from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path

import pytest

from fleet.management.doctor.bundle import LOG_LINES, select_redis_fields, write_bundle
from fleet.management.doctor.redaction import Redactor

_SECRET = "s3same-0pen"


def _write(path: Path, log_folder: Path) -> dict[str, str]:
    report = {"errors": 1, "findings": [{"summary": f"redis://:{_SECRET}@h fails"}]}
    redis_fields = {"redis_version": "7.2.4", "executable": _SECRET, "maxmemory": 0}
    write_bundle(path, report, {"REFLOAT_HTTPS": "true"}, redis_fields, log_folder, Redactor([_SECRET]))
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_contents(tmp_path: Path) -> None:
    """The last lines of each log, without secrets, also where a secret began before them."""
    log_folder, path = tmp_path / "log", tmp_path / "bundle.zip"
    log_folder.mkdir()
    key_lines = [_SECRET, *["base64"] * (LOG_LINES + 10), "-----END PRIVATE KEY-----"]
    (log_folder / "web.log").write_text(
        "\n".join(["-----BEGIN PRIVATE KEY-----", *key_lines, "the last line"])
    )
    (log_folder / "beat.log").write_text("".join(f"line {number}\n" for number in range(LOG_LINES + 50)))
    (tmp_path / "elsewhere").write_text("elsewhere")
    (log_folder / "link.log").symlink_to(tmp_path / "elsewhere")

    files = _write(path, log_folder)

    assert set(files) == {
        *("README.txt", "findings.json", "settings.json", "redis.json", "log/beat.log", "log/web.log")
    }
    assert _SECRET not in str(files)
    assert "base64" not in files["log/web.log"]
    assert files["log/web.log"].endswith("the last line\n")
    assert files["log/beat.log"].splitlines()[0] == "line 50"
    assert json.loads(files["redis.json"]) == {"redis_version": "7.2.4", "maxmemory": 0}
    assert all(
        name.rpartition("/")[0] or name in files["README.txt"] for name in files if name != "README.txt"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_existing_file_stays(tmp_path: Path) -> None:
    """A link, too: the bundle never goes elsewhere."""
    path = tmp_path / "bundle.zip"
    path.symlink_to(tmp_path / "target")

    with pytest.raises(FileExistsError):
        _write(path, tmp_path)
    assert not (tmp_path / "target").exists()


def test_very_long_log_is_cut(tmp_path: Path) -> None:
    """Its first line in the bundle is complete."""
    (tmp_path / "web.log").write_text("x" * (2 * 1024 * 1024) + "\nlast\n")

    assert _write(tmp_path / "bundle.zip", tmp_path)["log/web.log"] == "last\n"


def test_fields_of_redis_have_no_addresses() -> None:
    assert select_redis_fields({"slave0": "ip=10.0.0.7", "role": "master"}) == {"role": "master"}
