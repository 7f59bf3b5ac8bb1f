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
    demo_process = start_demo(tmp_path_factory.mktemp("demo"), *shape, *ttls)
    try:
        yield demo_process
    finally:
        demo_process.stop()


def _agents(demo: Demo) -> list[dict[str, Any]]:
    agents: list[dict[str, Any]] = demo.get(f"agents?limit={AGENTS}")["agents"]
    return agents


def _agent_ids_at(demo: Demo, auth: str) -> set[str]:
    """Agents whose heartbeats an auth writes."""
    return {agent["id"] for agent in _agents(demo) if agent["auth"] and agent["auth"]["name"] == auth}


def _read_page(demo: Demo, path: str) -> str:
    """Return the text of a page, without markup, for a user who signs in by the form."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    login = f"{demo.url.rstrip('/')}/accounts/login/"
    with opener.open(login, timeout=PATIENCE) as answer:
        csrf = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.read().decode())
    assert csrf is not None
    form = {"csrfmiddlewaretoken": csrf[1], "login": "demo", "password": demo.password, "next": path}
    request = urllib.request.Request(login, urllib.parse.urlencode(form).encode(), {"Referer": login})
    with opener.open(request, timeout=PATIENCE) as answer:
        return html.unescape(re.sub(r"<[^>]*>", "", answer.read().decode()))


def _policies(demo: Demo, *args: str) -> dict[str, Any]:
    """Run `refloat policies set` to its end; return the change."""
    argv = [
        sys.executable,
        "-m",
        "fleet.cli",
        "policies",
        "set",
        *args,
        "--yes",
        "--reason",
        "agents must move",
    ]
    process = subprocess.run(
        [*argv, "--json", "--home", str(demo.home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


def _running_policies(demo: Demo) -> dict[str, tuple[str, str]]:
    """What each auth runs with for load balancing, as the console sees it: state and source."""
    return {
        instance["name"]: next(
            (p["state"], p["source"]) for p in instance["policies"] if p["name"] == RFD_VARIABLE
        )
        for instance in demo.get("policies")["instances"]
        if instance["role"] == "auth"
    }


def test_rollout_makes_agents_move_by_themselves(demo: Demo) -> None:
    """Before: the cut strands those of auth-2, and the console says what alone brings them back. After the rollout,
    one auth at a time, the same cut moves them; unset again, all auths run as before."""
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    victims = _agent_ids_at(demo, "auth-2")
    assert victims

    demo.fleet("block-backend", "auth-2")
    eventually_sync(
        lambda: {agent["id"] for agent in _agents(demo) if agent["state"] == "stranded"} == victims,
        seconds=PATIENCE,
    )
    victim = next(agent for agent in _agents(demo) if agent["id"] in victims)
    assert (victim["recovery"], victim["auth"]["name"]) == ("only-if-cause-recovers", "auth-2")
    assert "Recovers when auth-2 recovers" in _read_page(demo, f"/agents/{victim['id']}/")
    demo.fleet("unblock-backend", "auth-2")
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    eventually_sync(
        lambda: set(_running_policies(demo).values()) == {("not-managed", "default")}, seconds=PATIENCE
    )

    rollout = _policies(demo, "auth", f"grpc-client-lb-policy={json.dumps(POLICY)}", "--soak-time", "1")
    assert (rollout["state"], rollout["finished_count"], rollout["failed_count"]) == ("verified", 3, 0)
    change = demo.get(f"changes/{rollout['id']}")
    assert [agent["name"] for agent in change["plan"]["restarts"]] == ["auth-1", "auth-2", "auth-3"]
    assert change["plan"]["effects"][0]["affected_now_count"] == AGENTS
    eventually_sync(lambda: set(_running_policies(demo).values()) == {("matches", "file")}, seconds=PATIENCE)
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    _ensure_agents_at(demo, "auth-2")

    demo.fleet("block-backend", "auth-2")
    eventually_sync(lambda: not _agent_ids_at(demo, "auth-2"), seconds=PATIENCE)
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
    demo.fleet("unblock-backend", "auth-2")

    eventually_sync(
        lambda: all(agent["state"] == "ok" for agent in demo.get("instances")["instances"]), seconds=PATIENCE
    )
    rollout = _policies(demo, "auth", "grpc-client-lb-policy=", "--soak-time", "1")
    assert (rollout["state"], rollout["finished_count"]) == ("verified", 3)
    eventually_sync(
        lambda: set(_running_policies(demo).values()) == {("not-managed", "default")}, seconds=PATIENCE
    )
    produced(
        Database(demo.home),
        causes=("auth",),
        recoveries=("only-if-cause-recovers",),
        change_kinds=("policy",),
        change_words=("plan", "confirm", "start", "verified"),
    )


def _ensure_agents_at(demo: Demo, auth: str) -> None:
    """See that agents are on an auth again: rolled out one after the other, the last one has none."""
    if _agent_ids_at(demo, auth):
        return
    auth_names = [name for name in ("auth-1", "auth-3") if _agent_ids_at(demo, name)]
    for name in auth_names[:1]:
        demo.fleet("block-backend", name)
        eventually_sync(lambda: bool(_agent_ids_at(demo, auth)), seconds=PATIENCE)
        demo.fleet("unblock-backend", name)
    demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
