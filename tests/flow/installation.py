"""An installation of a test's own, for commands that run as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.meta.house import ROOT


@dataclass
class Installation:
    """A home folder with a prepared database, and the environment of its programs."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    #: Longest file that its programs may write; None: no limit.
    max_file_bytes: int | None = None

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `refloat` with these arguments."""
        return self._start("-m", "fleet.cli", *arguments)

    def execute(self, code: str) -> None:
        """Run Python code with Django and the settings of this installation."""
        process = self._start("-c", f"import django; django.setup()\n{code}")
        assert process.returncode == 0, process.stderr

    def find(self, *arguments: str) -> dict[str, list[dict[str, Any]]]:
        """Run the doctor and return its findings by name, errors and warnings only."""
        process = self.run("doctor", "--json", *arguments)
        assert process.returncode in {0, 1}, process.stderr
        document = json.loads(process.stdout)
        assert process.returncode == bool(document["errors"])
        findings: dict[str, list[dict[str, Any]]] = {}
        for finding in document["findings"]:
            if finding["verdict"] in {"error", "warning"}:
                assert finding["remedy"], finding
                findings.setdefault(finding["name"], []).append(finding)
        return findings

    def _start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept_environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {
            **kept_environment,
            "PYTHONPATH": str(ROOT),
            "REFLOAT_HOME": str(self.home),
            "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
            **self.environment,
        }
        limit = [] if self.max_file_bytes is None else ["prlimit", f"--fsize={self.max_file_bytes}"]
        return subprocess.run(
            [*limit, sys.executable, *arguments],
            cwd=self.home.parent,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
