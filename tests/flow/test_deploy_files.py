"""The files of deploy/, judged by the programs that read them: systemd, Prometheus, hadolint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.processes.valkey import find_free_port
from tests.fakes.programs import run_program, skip_without
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT

pytestmark = pytest.mark.slow

_DEPLOY = ROOT / "deploy"
#: Of 10: what `systemd-analyze security` calls OK ends at 4.9; a unit without limits has 9.2.
_HIGHEST_EXPOSURE = 2.0
_UNITS = [
    path.name.replace("@.", "@polls.") for path in sorted((_DEPLOY / "systemd").glob("refloat*.service"))
]


def _find_program(name: str, package: str) -> str:
    path = shutil.which(name)
    skip_without("" if path else f"{name} is missing: apt-get install {package}")
    return path or name


def _run(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=_DEPLOY,
        env={**os.environ, **environment},
    )


@pytest.fixture
def small_demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo of its own: what other tests do to their fleet is no concern of a dashboard."""
    demo = start_demo(tmp_path / "demo", "--auths", "2", "--proxies", "2", "--agents", "10")
    try:
        yield demo
    finally:
        demo.stop()


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A folder with the units, which start programs that exist."""
    folder = tmp_path / "etc/systemd/system"
    shutil.copytree(_DEPLOY / "systemd", folder)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "refloat"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    for unit in folder.glob("*.service"):
        unit.write_text(unit.read_text().replace("/opt/refloat/bin", str(programs)))
    return folder


@pytest.mark.parametrize("unit", [*_UNITS, "refloat.target"])
def test_units_are_valid_for_systemd(unit: str, units: Path) -> None:
    """Without a word of warning."""
    program = _find_program("systemd-analyze", "systemd")
    process = _run(program, "verify", unit, SYSTEMD_UNIT_PATH=f"{units}:/lib/systemd/system")
    complaints = [line for line in process.stderr.splitlines() if "refloat" in line]

    assert (process.returncode, complaints) == (0, [])


@pytest.mark.parametrize("unit", _UNITS)
def test_units_have_limits(unit: str, units: Path) -> None:
    """By systemd's own measure; the limits are one file for all of them."""
    program = _find_program("systemd-analyze", "systemd")
    root = units.parents[2]
    process = _run(program, f"--root={root}", "security", "--offline=true", unit)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", process.stdout)

    assert exposure is not None, process
    assert float(exposure[1]) <= _HIGHEST_EXPOSURE, process.stdout


def test_image_file_has_no_findings() -> None:
    """hadolint knows what goes wrong in such files; the image itself is built where there is a builder."""
    process = _run(str(Path(sys.executable).with_name("hadolint")), "Dockerfile")

    assert (process.returncode, process.stdout) == (0, "")


@pytest.mark.parametrize("command", ["check", "test"])
def test_rules_pass_the_tests_of_prometheus(command: str) -> None:
    """promtool checks the rules, and evaluates them on made-up series."""
    name = "refloat.rules.yaml" if command == "check" else "refloat.rules.test.yaml"
    process = _run(_find_program("promtool", "prometheus"), command, "rules", f"prometheus/{name}")

    assert process.returncode == 0, process.stdout + process.stderr


def test_scrape_configuration_is_valid(tmp_path: Path) -> None:
    """As a whole configuration."""
    shutil.copytree(_DEPLOY / "prometheus", tmp_path / "prometheus")
    config = tmp_path / "prometheus/scrape.yaml"
    config.write_text(config.read_text().replace("/etc/prometheus/refloat_token", str(tmp_path / "token")))
    (tmp_path / "token").write_text("token")
    process = _run(_find_program("promtool", "prometheus"), "check", "config", str(config))

    assert process.returncode == 0, process.stdout + process.stderr


def _queries_of_dashboard() -> list[str]:
    dashboard = json.loads((_DEPLOY / "grafana/refloat.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [
        variable["query"]["query"]
        for variable in dashboard["templating"]["list"]
        if variable["name"] == "cluster"
    ]
    names = [re.sub(r"label_values\((\w+), \w+\)", r"\1", variable) for variable in variables]
    return [query.replace("$cluster", ".+") for query in (*queries, *names)]


def _queries_of_rules() -> list[str]:
    """Return each metric with its labels that a rule reads, without the comparison."""
    rules = yaml.safe_load((_DEPLOY / "prometheus/refloat.rules.yaml").read_text())["groups"][0]["rules"]
    return sorted(
        {
            series
            for rule in rules
            for series in re.findall(r"(?:refloat_\w+|\bup)(?:\{[^}]*\})?", rule["expr"])
        }
    )


def test_queries_have_answers_from_a_live_console(small_demo: Demo, tmp_path: Path) -> None:
    """Each query of the dashboard and each series of the rules, in a Prometheus that scrapes the console."""
    program = _find_program("prometheus", "prometheus")
    listen = f"127.0.0.1:{find_free_port()}"
    (tmp_path / "token").write_text(small_demo.token)
    rules = _DEPLOY / "prometheus/refloat.rules.yaml"
    config: dict[str, Any] = yaml.safe_load((_DEPLOY / "prometheus/scrape.yaml").read_text())
    config["rule_files"] = [str(rules)]
    (scrape,) = config["scrape_configs"]
    scrape |= {"scheme": "http", "scrape_interval": "1s"}
    scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
    scrape["static_configs"] = [{"targets": [urllib.parse.urlsplit(small_demo.url).netloc]}]
    config["global"] = {"evaluation_interval": "1s"}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    argv = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]

    def query(text: str) -> list[Any]:
        address = f"http://{listen}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
        try:
            with urllib.request.urlopen(address, timeout=30) as response:
                return list(json.load(response)["data"]["result"])
        except urllib.error.HTTPError as error:
            if error.code == 503:  # Prometheus is starting.
                return []
            raise AssertionError(f"{text}: {error.read().decode()}") from error
        except OSError:
            return []

    with run_program("prometheus", [*argv, f"--web.listen-address={listen}"], tmp_path) as peer:
        # The recorded series come one evaluation after the first scrape.
        peer.await_condition(lambda: query("cluster:refloat_agents_unreachable:ratio"), "to scrape")
        queries = [*_queries_of_dashboard(), *_queries_of_rules()]
        assert [text for text in queries if not query(text)] == []
