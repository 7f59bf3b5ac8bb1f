"""System checks of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from pytest_django import Settings

from fleet.checks import check_fleet_addresses


def _problem_ids() -> set[str]:
    return {problem.id for problem in checks.run_checks() if problem.id and problem.id.startswith("fleet.")}


def _pem(folder: Path) -> str:
    """Return the path of a file that looks like a certificate."""
    path = folder / "x.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\n")
    return str(path)


def test_default_settings_have_no_problems() -> None:
    """With nothing set every check passes."""
    assert _problem_ids() == set()


@pytest.mark.parametrize(
    ("values", "problem_id"),
    [
        ({"REFLOAT_TLS_CA": "/nowhere/ca.pem"}, "fleet.E001"),
        ({"REFLOAT_TLS_CA": pytest.__file__}, "fleet.E001"),
        ({"REFLOAT_TLS_CA": "PEM", "REFLOAT_TLS_CERT": "PEM"}, "fleet.E002"),
        ({"REFLOAT_TLS_CERT": "PEM", "REFLOAT_TLS_KEY": "PEM"}, "fleet.E003"),
        ({"REFLOAT_ROUND_INTERVAL": 1.0, "REFLOAT_ROUND_DEADLINE": 1.0}, "fleet.E004"),
        ({"REFLOAT_SHARD_SIZE": 0}, "fleet.E005"),
        ({"REDIS_URL": "memcached://x"}, "fleet.E006"),
        ({"REFLOAT_AUTHS": ["auth-1"]}, "fleet.E007"),
        ({"REFLOAT_AUTHS": ["auth-1:99999"]}, "fleet.E007"),
        ({"REFLOAT_PUBLIC_URL": "console.example"}, "fleet.E008"),
        ({"REFLOAT_DEADMAN_URL": "https://"}, "fleet.E008"),
        ({"REFLOAT_DEADMAN_URL": "https://a:port/"}, "fleet.E008"),
        ({"EMAIL_PORT": 99_999}, "fleet.E009"),
    ],
)
def test_invalid_setting_is_a_problem(
    settings: Settings, tmp_path: Path, values: dict[str, Any], problem_id: str
) -> None:
    """One wrong thing, one id."""
    pem = _pem(tmp_path)
    for name, value in values.items():
        setattr(settings, name, pem if value == "PEM" else value)

    assert _problem_ids() == {problem_id}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memcached://x", "REDIS_URL has the scheme memcached://, which is not for Redis."),
        ("foo", "REDIS_URL has no scheme."),
        ("cache.example:6379", "REDIS_URL has no scheme."),
    ],
)
def test_problem_of_a_redis_url_names_the_scheme(settings: Settings, url: str, message: str) -> None:
    """The URL, which may contain a password, is not repeated."""
    settings.REDIS_URL = url

    assert [problem.msg for problem in check_fleet_addresses(None)] == [message]


def test_valid_settings_have_no_problems(settings: Settings, tmp_path: Path) -> None:
    """A full set of files and addresses has nothing wrong."""
    settings.REFLOAT_TLS_CA = settings.REFLOAT_TLS_CERT = settings.REFLOAT_TLS_KEY = _pem(tmp_path)
    settings.REFLOAT_PUBLIC_URL = "https://console.example:8443/refloat/"
    settings.REFLOAT_AUTHS = ["auth-1.example:3025", "[::1]:3025"]

    assert _problem_ids() == set()
