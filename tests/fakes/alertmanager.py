"""A real prometheus-alertmanager from Debian (`make peers`) that tests can restart."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from fleet.processes.valkey import find_free_port
from tests.fakes.programs import skip_without
from tests.fakes.waiting import eventually_sync

_PROGRAM = "prometheus-alertmanager"
_CONFIG = """
route: {receiver: hook, group_by: [incident], group_wait: 100ms, group_interval: 200ms}
receivers: [{name: hook, webhook_configs: [{url: "%s", send_resolved: true}]}]
"""


class Alertmanager:
    """Runs while its block lasts, and forwards every alert to a webhook."""

    def __init__(self, folder: Path, webhook: str) -> None:
        skip_without(
            ""
            if shutil.which(_PROGRAM)
            else f"{_PROGRAM.upper()} IS MISSING: run `make peers` as root, or apt-get install {_PROGRAM}"
        )
        address = f"127.0.0.1:{find_free_port()}"
        self.url = f"http://{address}"
        config = folder / "config.yml"
        config.write_text(_CONFIG % webhook)
        self._argv = [_PROGRAM, f"--config.file={config}", f"--storage.path={folder}"]
        self._argv += [f"--web.listen-address={address}", "--cluster.listen-address="]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Alertmanager:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process, and wait until it is ready."""
        self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually_sync(self._ready)

    def stop(self) -> None:
        """Stop the process; its alerts are lost."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)
            self._process = None

    def active(self) -> list[dict[str, Any]]:
        """Return the active alerts."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts?active=true", timeout=30) as response:
            alerts: list[dict[str, Any]] = json.load(response)
        return alerts

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
