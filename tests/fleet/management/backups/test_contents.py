"""Settings and secrets of an archive."""

from __future__ import annotations

from pathlib import Path

from fleet.management.backups.contents import (
    list_different_settings,
    name_cluster_files,
    select_settings,
    write_secrets,
    write_settings,
)
from fleet.management.doctor.redaction import Redactor
from fleet.transport.tls import TLSFiles

_NAMES = {
    *("REFLOAT_HOME", "REFLOAT_AUTHS", "REFLOAT_SECRET_KEY", "DATABASE_URL", "REFLOAT_PUBLIC_URL"),
    "REFLOAT_EMAIL_PASSWORD",
}
_ENVIRONMENT = {
    "REFLOAT_HOME": "home",
    "REFLOAT_AUTHS": "auth-1:3025",
    "REFLOAT_SECRET_KEY": "same0pen",
    "DATABASE_URL": "postgres://ada:same0pen@db/refloat",
    "REFLOAT_PUBLIC_URL": "https://same0pen.example.com/",
    "REFLOAT_EMAIL_PASSWORD_FILE": "/etc/refloat/password",
    "PATH": "/bin",
}


def test_settings_without_secrets() -> None:
    """Known settings only, and none with a secret in its value."""
    settings = select_settings(_ENVIRONMENT, _NAMES, Redactor(["same0pen"]), with_secrets=False)
    assert settings == {
        "REFLOAT_AUTHS": "auth-1:3025",
        "REFLOAT_EMAIL_PASSWORD_FILE": "/etc/refloat/password",
    }


def test_settings_with_secrets() -> None:
    """All known settings but the folder of the installation."""
    settings = select_settings(_ENVIRONMENT, _NAMES, Redactor(["same0pen"]), with_secrets=True)
    assert settings == {
        name: value for name, value in _ENVIRONMENT.items() if name not in {"REFLOAT_HOME", "PATH"}
    }


def test_different_settings(tmp_path: Path) -> None:
    """Missing or other values; a file that cannot be read has none."""
    (path,) = write_settings(tmp_path, {"A": "1", "B": "2", "C": "3"}).values()
    assert list_different_settings(path, {"A": "1", "B": "0", "D": "4"}) == ["B", "C"]
    path.write_text("[]")
    assert list_different_settings(path, {}) == []
    assert list_different_settings(tmp_path / "absent", {}) == []


def test_secrets(tmp_path: Path) -> None:
    """The key, and the TLS files that are set: those of the settings, and those of clusters."""
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "own.key").write_text("key")
    folder = tmp_path / "work"
    folder.mkdir()
    tls = TLSFiles(key=tmp_path / "own.key", authority=tmp_path / "ca.crt")

    cluster_files = name_cluster_files({"eu": {"authority": str(tmp_path / "ca.crt")}, "us": {}})
    paths = write_secrets(folder, "same0pen", tls, cluster_files)

    assert {name: path.read_text() for name, path in paths.items()} == {
        "secret_key": "same0pen",
        "tls/ca.pem": "ca",
        "tls/eu-ca.pem": "ca",
        "tls/key.pem": "key",
    }
