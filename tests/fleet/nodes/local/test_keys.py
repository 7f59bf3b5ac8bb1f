"""Keys and certificates of a local fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.nodes.local import keys
from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local.plan import FleetPlan
from fleet.nodes.local.record import FleetError


def test_make_issues_a_certificate_to_every_process(tmp_path: Path) -> None:
    """Every file in the flags of a process exists, and so do the console's files."""
    plan = FleetPlan(auths=1, proxies=1, agents=3, agents_per_process=2, keys_folder=tmp_path / "keys")
    keys.make(plan)
    arguments = fleet_plan.make_instance_argv(plan, "auth", "auth-1", "127.0.0.1:1", {})
    arguments += fleet_plan.make_instance_argv(plan, "proxy", "proxy-1", "127.0.0.1:1", {})
    for name, first, count in plan.agent_groups:
        arguments += fleet_plan.make_agents_argv(plan, name, first, count, "127.0.0.1:2", "127.0.0.1:3")
    flags = ("--tls-ca", "--tls-cert", "--tls-key")
    files = [Path(arguments[i + 1]) for i, argument in enumerate(arguments) if argument in flags]
    assert len(files) == 4 * 3
    files += [Path(path) for path in keys.console_settings_of(tmp_path / "keys").values()]
    assert all(file.is_file() for file in files)


def test_make_without_tls_creates_no_keys(tmp_path: Path) -> None:
    """The processes get no TLS flags either."""
    plan = FleetPlan()
    keys.make(plan)
    assert not any(
        "tls" in argument for argument in fleet_plan.make_agents_argv(plan, "agents-1", 1, 1, "a:1", "p:1")
    )
    assert list(tmp_path.iterdir()) == []


def test_make_in_unwritable_folder_names_the_folder(tmp_path: Path) -> None:
    """The error is a FleetError."""
    (tmp_path / "keys").write_text("a file")
    with pytest.raises(FleetError, match="cannot create the keys of the fleet in"):
        keys.make(FleetPlan(keys_folder=tmp_path / "keys"))
