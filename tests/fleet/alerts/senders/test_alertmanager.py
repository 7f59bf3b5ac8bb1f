"""Against a real prometheus-alertmanager from Debian where there is one (`make peers`)."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.alerts.senders import alertmanager
from fleet.alerts.values import NoticeKind
from tests.fakes.errands import errand
from tests.fakes.programs import skip_without
from tests.fakes.receivers import Receiver, receiving

_PROGRAM = "prometheus-alertmanager"
_CONFIG = """
route: {receiver: hook, group_by: [incident], group_wait: 100ms, group_interval: 200ms}
receivers: [{name: hook, webhook_configs: [{url: "%s", send_resolved: true}]}]
"""


def test_alert_keeps_its_labels_through_its_life() -> None:
    """Firing, worse and resolved are one alert; its end is in the past when it is over."""
    firing, worse, over = (
        alertmanager.alert(errand(kind))
        for kind in (NoticeKind.FIRING, NoticeKind.WORSE, NoticeKind.RESOLVED)
    )
    assert firing["labels"] == worse["labels"] == over["labels"]
    assert firing["endsAt"] > over["endsAt"]
    assert over["annotations"]["peak"] == "207"
    assert firing["generatorURL"] == "https://console.example.com/incidents/7/"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, Receiver]]:
    """An Alertmanager that passes everything on to a webhook."""
    skip_without(
        ""
        if shutil.which(_PROGRAM)
        else f"{_PROGRAM.upper()} IS MISSING: run `make peers` as root, or apt-get install {_PROGRAM}"
    )
    with receiving() as receiver, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        (tmp_path / "config.yml").write_text(_CONFIG % receiver.url)
        argv = [_PROGRAM, f"--config.file={tmp_path / 'config.yml'}", f"--storage.path={tmp_path}"]
        argv += [f"--web.listen-address={address}", "--cluster.listen-address="]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _until(lambda: _answers(f"http://{address}/-/ready"))
                yield f"http://{address}", receiver
            finally:
                process.terminate()


@pytest.mark.slow
def test_real_alertmanager_takes_and_resolves_it(manager: tuple[str, Receiver]) -> None:
    """It fires once, shows up in the API, and is resolved once."""
    url, receiver = manager
    # Times of today: Alertmanager resolves what ended long ago before it is told of it.
    firing, over = errand(NoticeKind.FIRING), errand(NoticeKind.RESOLVED)
    for one, shown in ((firing, "firing"), (over, "resolved")):
        incident = {**one.incident, "opened_at": _stamp(-60), "resolved_at": None}
        if shown == "resolved":
            incident["resolved_at"] = _stamp(0)
        payload = {**one.payload, "incident": incident}
        alertmanager.send(type(one)(payload, one.key, time.time(), {"url": url}, {}, allow_private=True))
        _until(lambda shown=shown: any(body["status"] == shown for body in receiver.bodies))  # type: ignore[misc]
    told = [body["status"] for body in receiver.bodies]
    assert told == ["firing", "resolved"]
    assert receiver.bodies[0]["alerts"][0]["annotations"]["summary"].startswith("CRIT default: 207 agents")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _until(seen: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, "it was not seen in time"
        time.sleep(0.05)


def test_payload_is_what_the_api_wants() -> None:
    """Strings only in labels and annotations: Alertmanager answers 400 otherwise."""
    alert = json.loads(json.dumps(alertmanager.alert(errand())))
    for part in ("labels", "annotations"):
        assert all(isinstance(value, str) and value for value in alert[part].values())
