"""`reconnect` rolled out over the auths of a real fleet: the cut that stranded agents before moves them afterwards."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from typing import Any

import pytest

from fleet.protocol.recovery.service_config import RFD_VARIABLE
from tests.fakes.waiting import eventually_sync
from tests.flow.producers import Database, produced
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
AGENTS = 12
PATIENCE = 300.0
POLICY = {
    "grpc_client_lb_policy": {
        "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
        "healthCheckConfig": {"serviceName": ""},
    }
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Three auths and two proxies with short TTLs; agents do not leave sick auths by themselves."""
    shape = ("--auths", "3", "--proxies", "2", "--agents", str(AGENTS))
    ttls = ("--announce-ttl", "10s", "--agent-announce-ttl", "12s")
    running = start_demo(tmp_path_factory.mktemp("demo"), *shape, *ttls)
    try:
        yield running
    finally:
        running.end()


def _agents(demo: Demo) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = demo.get(f"agents?limit={AGENTS}")["agents"]
    return found


def _at(demo: Demo, auth: str) -> set[str]:
    """Agents whose heartbeats an auth writes."""
    return {one["id"] for one in _agents(demo) if one["auth"] and one["auth"]["name"] == auth}


def _page(demo: Demo, path: str) -> str:
    """What somebody who signs in by the form reads on a page."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    login = f"{demo.url.rstrip('/')}/accounts/login/"
    with opener.open(login, timeout=PATIENCE) as answer:
        found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.read().decode())
    assert found is not None
    sent = {"csrfmiddlewaretoken": found[1], "login": "demo", "password": demo.password, "next": path}
    asked = urllib.request.Request(login, urllib.parse.urlencode(sent).encode(), {"Referer": login})
    with opener.open(asked, timeout=PATIENCE) as answer:
        return html.unescape(answer.read().decode())


def _policies(demo: Demo, *words: str) -> dict[str, Any]:
    """`refloat policies set`, watched to its end."""
    argv = [
        sys.executable,
        "-m",
        "fleet.cli",
        "policies",
        "set",
        *words,
        "--yes",
        "--reason",
        "agents must move",
    ]
    done = subprocess.run(
        [*argv, "--json", "--home", str(demo.home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _runs(demo: Demo) -> dict[str, tuple[str, str]]:
    """What each auth runs with for load balancing, as the console sees it: state and source."""
    return {
        one["name"]: next((p["state"], p["source"]) for p in one["policies"] if p["name"] == RFD_VARIABLE)
        for one in demo.get("policies")["instances"]
        if one["role"] == "auth"
    }


def test_rollout_makes_agents_move_by_themselves(demo: Demo) -> None:
    """Before: the cut strands those of auth-2, and the console says what alone brings them back. After the rollout,
    one auth at a time, the same cut moves them; unset again, all auths run as before."""
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    victims = _at(demo, "auth-2")
    assert victims

    demo.fleet("block-backend", "auth-2")
    eventually_sync(
        lambda: {one["id"] for one in _agents(demo) if one["state"] == "stranded"} == victims,
        seconds=PATIENCE,
    )
    stranded = next(one for one in _agents(demo) if one["id"] in victims)
    assert (stranded["recovery"], stranded["auth"]["name"]) == ("only-if-cause-recovers", "auth-2")
    assert "Recovers when auth-2 recovers" in _page(demo, f"/agents/{stranded['id']}/")
    demo.fleet("unblock-backend", "auth-2")
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    eventually_sync(lambda: set(_runs(demo).values()) == {("free", "default")}, seconds=PATIENCE)

    done = _policies(demo, "auth", f"grpc-client-lb-policy={json.dumps(POLICY)}", "--soak-time", "1")
    assert (done["state"], done["done"], done["failed"]) == ("verified", 3, 0)
    change = demo.get(f"changes/{done['id']}")
    assert [one["name"] for one in change["plan"]["restarts"]] == ["auth-1", "auth-2", "auth-3"]
    assert change["plan"]["effects"][0]["agents_now"] == AGENTS
    eventually_sync(lambda: set(_runs(demo).values()) == {("same", "file")}, seconds=PATIENCE)
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    _crowd(demo, "auth-2")

    demo.fleet("block-backend", "auth-2")
    eventually_sync(lambda: not _at(demo, "auth-2"), seconds=PATIENCE)
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    demo.fleet("unblock-backend", "auth-2")

    eventually_sync(
        lambda: all(one["state"] == "ok" for one in demo.get("instances")["instances"]), seconds=PATIENCE
    )
    done = _policies(demo, "auth", "grpc-client-lb-policy=", "--soak-time", "1")
    assert (done["state"], done["done"]) == ("verified", 3)
    eventually_sync(lambda: set(_runs(demo).values()) == {("free", "default")}, seconds=PATIENCE)
    produced(
        Database(demo.home),
        causes=("auth",),
        recoveries=("only-if-cause-recovers",),
        change_kinds=("policy",),
        change_words=("plan", "confirm", "start", "verified"),
    )


def _crowd(demo: Demo, auth: str) -> None:
    """See that agents are on an auth again: rolled out one after the other, the last one has none."""
    if _at(demo, auth):
        return
    others = [name for name in ("auth-1", "auth-3") if _at(demo, name)]
    for name in others[:1]:
        demo.fleet("block-backend", name)
        eventually_sync(lambda: bool(_at(demo, auth)), seconds=PATIENCE)
        demo.fleet("unblock-backend", name)
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
