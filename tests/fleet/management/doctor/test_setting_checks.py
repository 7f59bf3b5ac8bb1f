from __future__ import annotations

import pytest
from django.core import checks

from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.management.doctor.setting_checks import (
    check_allowed_hosts,
    check_setting_combinations,
    check_setting_names,
    check_setting_values,
)

_SETTING_NAMES = frozenset(
    {"REFLOAT_ALLOWED_HOSTS", "REFLOAT_HTTPS", "REFLOAT_SECRET_KEY", "REFLOAT_SECRET_KEY_FILE"}
)


def _names_of(*names: str) -> list[CheckFinding]:
    return list(check_setting_names(names, _SETTING_NAMES))


def test_invalid_values_are_errors() -> None:
    """The sentence is that of the start."""
    (finding,) = check_setting_values(["REFLOAT_HTTPS='yes' is invalid: use true or false"])

    assert finding.verdict is CheckVerdict.ERROR
    assert finding.summary == "REFLOAT_HTTPS='yes' is invalid: use true or false."
    assert next(check_setting_values([])).verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("REFLOAT_ALOWED_HOSTS", "Rename it to REFLOAT_ALLOWED_HOSTS, or unset it."),
        ("REFLOAT_SECRETKEY", "Rename it to REFLOAT_SECRET_KEY, or unset it."),
        ("REFLOAT_WEATHER_REPORT", "Unset it, or correct its name"),
    ],
)
def test_unknown_names_get_a_suggestion(name: str, remedy: str) -> None:
    """If a setting has a similar name."""
    (finding,) = _names_of(name, "PATH")

    assert finding.verdict is CheckVerdict.WARNING
    assert name in finding.summary
    assert finding.remedy.startswith(remedy)


def test_names_of_other_programs_are_no_problem() -> None:
    """Variables of the API client, and files with secrets."""
    (finding,) = _names_of("REFLOAT_TOKEN", "REFLOAT_URL", "REFLOAT_SECRET_KEY_FILE", "PATH")

    assert finding.verdict is CheckVerdict.OK


def test_system_checks_are_findings() -> None:
    """With their hints; unreadable TLS files have a finding of their own."""
    messages = [
        checks.Error("Overlap.", hint="Shorten it.", id="fleet.E004"),
        checks.Warning("Only http.", id="dashboards.W003"),
        checks.Error("No file.", id="fleet.E001"),
    ]

    error, warning = check_setting_combinations(messages)

    assert (error.verdict, error.summary, error.remedy) == (CheckVerdict.ERROR, "Overlap.", "Shorten it.")
    assert (warning.verdict, bool(warning.remedy)) == (CheckVerdict.WARNING, True)
    assert next(check_setting_combinations([])).verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("public_url", "allowed_hosts", "verdict"),
    [
        ("", ["localhost"], CheckVerdict.OK),
        ("https://console.example.com/", ["console.example.com"], CheckVerdict.OK),
        ("https://console.example.com:8443/", [".example.com"], CheckVerdict.OK),
        ("http://[::1]:8000/", ["[::1]"], CheckVerdict.OK),
        ("https://console.example.com/", ["localhost", "127.0.0.1"], CheckVerdict.ERROR),
    ],
)
def test_public_host_must_be_allowed(
    public_url: str, allowed_hosts: list[str], verdict: CheckVerdict
) -> None:
    """The remedy keeps the other hosts."""
    (finding,) = check_allowed_hosts(public_url, allowed_hosts)

    assert finding.verdict is verdict
    if verdict is CheckVerdict.ERROR:
        assert finding.remedy == "Set REFLOAT_ALLOWED_HOSTS=localhost,127.0.0.1,console.example.com."
