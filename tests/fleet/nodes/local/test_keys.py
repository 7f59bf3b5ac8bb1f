"""Keys of a local fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.nodes.local import keys
from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local.plan import FleetPlan
from fleet.nodes.local.record import FleetError


def test_make_issues_a_certificate_to_every_process(tmp_path: Path) -> None:
    """Each file that a process is told of is there, and so are the console's."""
    plan = FleetPlan(auths=1, proxies=1, agents=3, agents_per_process=2, keys=tmp_path / "keys")
    keys.make(plan)
    told = fleet_plan.instance(plan, "auth", "auth-1", "127.0.0.1:1", {})
    told += fleet_plan.instance(plan, "proxy", "proxy-1", "127.0.0.1:1", {})
    for name, first, count in plan.agent_groups:
        told += fleet_plan.agents(plan, name, first, count, "127.0.0.1:2", "127.0.0.1:3")
    flags = ("--tls-ca", "--tls-cert", "--tls-key")
    files = [Path(told[i + 1]) for i, word in enumerate(told) if word in flags]
    assert len(files) == 4 * 3
    files += [Path(path) for path in keys.of_console(tmp_path / "keys").values()]
    assert all(file.is_file() for file in files)


def test_make_without_tls_makes_nothing(tmp_path: Path) -> None:
    """No keys, and no flags."""
    plan = FleetPlan()
    keys.make(plan)
    assert not any("tls" in word for word in fleet_plan.agents(plan, "agents-1", 1, 1, "a:1", "p:1"))
    assert list(tmp_path.iterdir()) == []


def test_make_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    """The error names the folder."""
    (tmp_path / "keys").write_text("a file")
    with pytest.raises(FleetError, match="cannot create the keys of the fleet in"):
        keys.make(FleetPlan(keys=tmp_path / "keys"))
