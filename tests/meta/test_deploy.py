"""deploy/ runs the same programs as `manage.py console`, with settings that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.program_flags import flags_of_console, flags_of_program
from tests.meta.house import ROOT

_DEPLOY = ROOT / "deploy"
_DOCUMENTED = re.findall(
    r"^\| `([A-Z_]+)` \|", (ROOT / "docs/reference/settings.md").read_text(), re.MULTILINE
)


def _unit(name: str, instance: str = "") -> dict[str, str]:
    text = (_DEPLOY / "systemd" / name).read_text().replace("%i", instance).replace("%%", "%")
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    return flags_of_program(shlex.split(line.removeprefix("ExecStart=")))


def _compose() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((_DEPLOY / "compose.yaml").read_text())
    return compose


@pytest.mark.parametrize("name", ["web", "beat", "alerts", "worker-polls", "worker-actions"])
def test_units_start_what_the_console_starts(name: str) -> None:
    """The same program with the same flags."""
    unit = (
        _unit(f"refloat-{name}.service")
        if name in {"web", "beat", "alerts"}
        else _unit("refloat-worker@.service", name.removeprefix("worker-"))
    )

    assert unit == flags_of_console()[name]


@pytest.mark.parametrize("name", ["web", "beat", "alerts", "worker-polls", "worker-actions"])
def test_compose_starts_what_the_console_starts(name: str) -> None:
    """The same program with the same flags."""
    assert (
        flags_of_program(_compose()["services"][name.removeprefix("worker-")]["command"])
        == flags_of_console()[name]
    )


def test_example_environment_names_settings_that_exist() -> None:
    """Nobody copies a variable that nothing reads."""
    settings = re.findall(r"^([A-Z_]+)=", (_DEPLOY / "refloat.env.example").read_text(), re.MULTILINE)

    assert {name.removesuffix("_FILE") for name in settings} <= set(_DOCUMENTED)


def test_compose_names_settings_that_exist() -> None:
    """As above, for containers."""
    assert set(_compose()["x-console"]["environment"]) <= set(_DOCUMENTED)


@pytest.mark.parametrize("unit", sorted((_DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name)
def test_unit_is_started_again_for_ever(unit: Path) -> None:
    """systemd gives a service up after five starts in 10 s, unless the unit says otherwise."""
    head, _, service = unit.read_text().partition("[Service]")
    ends_by_itself = "Type=oneshot" in service.splitlines()

    assert "StartLimitIntervalSec=0" in head.splitlines()
    assert f"Restart={'on-failure' if ends_by_itself else 'always'}" in service.splitlines()


@pytest.mark.parametrize("unit", sorted((_DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name)
def test_unit_gets_the_shared_limits(unit: Path) -> None:
    """By its name: systemd reads `refloat-.service.d` for each unit that begins so. It does not run as root."""
    assert (_DEPLOY / "systemd/refloat-.service.d/hardening.conf").exists()
    assert unit.name.startswith("refloat-")
    assert "User=refloat" in unit.read_text().splitlines()


def test_target_starts_every_part_of_the_console() -> None:
    """And nothing twice: the whole console in one service is its alternative."""
    target = (_DEPLOY / "systemd/refloat.target").read_text()
    wanted_units = re.search(r"^Wants=(.*)$", target, re.MULTILINE)

    assert wanted_units is not None
    assert {name.removesuffix(".service").removeprefix("refloat-") for name in wanted_units[1].split()} == {
        name.replace("worker-", "worker@") for name in flags_of_console()
    }
    assert "Conflicts=refloat-console.service" in target.splitlines()


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_reverse_proxy_is_trusted_by_every_part(proxy: str) -> None:
    """The file for a reverse proxy changes the settings of all parts of the console, which read the same."""
    behind = yaml.safe_load((_DEPLOY / f"compose.{proxy}.yaml").read_text())["services"]
    parts = {name for name, service in _compose()["services"].items() if service.get("image") == "refloat"}

    assert parts == set(behind) - {proxy}
    assert all(behind[part]["environment"]["REFLOAT_TRUSTED_PROXIES"] == "1" for part in parts)
    assert set(behind["web"]["environment"]) <= set(_DOCUMENTED)


@pytest.mark.parametrize(
    "name", ["HTTPS", "TRUSTED_PROXIES", "TRUSTED_ORIGINS", "PUBLIC_URL", "ALLOWED_HOSTS"]
)
def test_compose_passes_reverse_proxy_settings(name: str) -> None:
    """The settings that say how people reach the console come from the environment of the operator."""
    assert _compose()["x-console"]["environment"][f"REFLOAT_{name}"].startswith(f"${{REFLOAT_{name}:-")
