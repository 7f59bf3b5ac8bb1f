"""The whole path, real from end to end: a fleet, polled into Redis, judged, and read by its users."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fleet.processes import children
from tests.fakes.waiting import eventually_sync, is_gone
from tests.flow.producers import Answers, Database, Frames, Pages, produced
from tests.flow.running import AGENTS, Demo, start_demo
from tests.meta.house import ROOT


def test_demo_comes_up_with_every_agent_healthy(whole_demo: Demo) -> None:
    """Every agent and instance is healthy; the terminal shows the address and the account."""
    instances = whole_demo.get("instances")["instances"]

    assert whole_demo.counts() == {"healthy": AGENTS}
    assert len(instances) == 4
    assert whole_demo.url in whole_demo.terminal_text()
    assert whole_demo.password in whole_demo.terminal_text()
    assert whole_demo.token not in whole_demo.terminal_text()
    assert stat.S_IMODE((whole_demo.home / "demo.json").stat().st_mode) == 0o600


def test_gateway_of_the_fleet_is_shown(whole_demo: Demo) -> None:
    """Nobody entered it: its routes for operators, and the auths as destinations."""

    def is_ok() -> bool:
        (gateway_item,) = whole_demo.get("edge-instances")["edge_instances"]
        return (gateway_item["name"], gateway_item["kind"], gateway_item["state"]) == (
            "gateway",
            "gateway",
            "ok",
        )

    eventually_sync(is_ok)
    gateway = whole_demo.get("edge-instances/gateway")["gateway"]
    assert gateway["rules"][0]["name"] == "operators/0"
    assert len(gateway["destinations"]) == 2


def test_processes_of_the_fleet_are_listed(whole_demo: Demo) -> None:
    """`refloat fleet ps --json` names each with its pid."""
    rows = json.loads(whole_demo.fleet("ps", "--json"))

    assert {"auth-1", "auth-2", "proxy-1", "proxy-2"} <= {row["name"] for row in rows}
    assert all(row["pid"] for row in rows)


def test_doctor_finds_no_error(whole_demo: Demo) -> None:
    """Neither in the files, nor in the services, nor in the processes."""
    kept_environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.run(
        [sys.executable, "-m", "fleet.cli", "doctor", "--json"],
        cwd=ROOT,
        env={**kept_environment, "REFLOAT_HOME": str(whole_demo.home)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert process.returncode in {0, 1}, process.stderr
    findings = json.loads(process.stdout)["findings"]

    assert [finding for finding in findings if finding["verdict"] == "error"] == []
    assert {"polling-rounds", "worker-actions", "scheduler", "alerting", "redis-clock"} <= {
        finding["name"] for finding in findings if finding["verdict"] != "skipped"
    }


def test_frozen_proxy_strands_agents_until_resumed(whole_demo: Demo) -> None:
    """Only its agents are stranded, with a reason that names the proxy; after the resume they recover.

    tests/flow/test_detection.py counts the rounds until then.
    """
    whole_demo.fleet("freeze", "proxy-1")
    try:
        proxy = next(i for i in whole_demo.get("instances")["instances"] if i["name"] == "proxy-1")

        def verdicts() -> set[tuple[str, str, bool]]:
            agents = whole_demo.get(f"agents?limit={AGENTS}")["agents"]
            return {
                (agent["state"], agent["cause"], "proxy-1" in agent["explanation"])
                for agent in agents
                if agent["state"] != "healthy"
            }

        eventually_sync(lambda: verdicts() == {("stranded", proxy["id"], True)})
    finally:
        whole_demo.fleet("resume", "proxy-1")

    whole_demo.await_counts({"healthy": AGENTS})
    produced(Database(whole_demo.home), verdicts=("stranded", "healthy"), causes=("proxy",))


def test_silent_pollers_make_everything_unknown(whole_demo: Demo) -> None:
    """Blind is not stranded: what is older than 15 s reads unknown. The supervisor starts pollers again that end.

    Pollers are frozen, and ended afterwards: a killed one is back before the data is too old.
    """
    silent = whole_demo.pollers()
    states: set[str] = set()

    def all_unknown() -> bool:
        summary = whole_demo.get("fleet/summary")
        counts = {slug: count for slug, count in summary["counts"].items() if count}
        states.update(counts)
        # By the answer's own age: when we ask, and how long we wait for it, is the machine's.
        assert counts == {"unknown": AGENTS} or summary["age_ms"] <= 15_000, summary
        return counts == {"unknown": AGENTS}

    with whole_demo.collect_frames() as frames:
        eventually_sync(lambda: bool(frames))
        for poller in silent:
            poller.send_signal(signal.SIGSTOP)
        eventually_sync(all_unknown)
        produced(
            Answers(whole_demo.get), verdicts=("unknown",), reasons=("stale",), instance_states=("unknown",)
        )
        produced(Frames(frames), events=("stale", "beat"))
        produced(
            Pages(lambda: [whole_demo.metrics()]),
            metrics=("refloat_data_stale", "refloat_websocket_connections"),
        )
    assert states <= {"healthy", "unknown"}
    for number in (signal.SIGTERM, signal.SIGCONT):
        for poller in silent:
            poller.send_signal(number)
    whole_demo.await_counts({"healthy": AGENTS}, seconds=180.0)
    eventually_sync(lambda: all(is_gone(poller.pid) for poller in silent))


def test_killed_programs_run_again(whole_demo: Demo) -> None:
    """SIGKILL of the web server, the workers, beat and what looks for incidents: each is back, by its own name."""

    def programs() -> dict[str, int]:
        pids = {}
        for process in whole_demo.processes():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                pids |= {keyword: process.pid for keyword in keywords if keyword in line}
        return pids

    keywords = (
        "uvicorn",
        "polls@%h",
        "actions@%h",
        "celery --quiet -A dashboards.config.beat",
        "django alerts",
    )
    # The previous test ended the pollers: the supervisor starts each again after a second.
    eventually_sync(lambda: set(programs()) == set(keywords))
    before = programs()
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    eventually_sync(lambda: all(programs().get(keyword, pid) != pid for keyword, pid in before.items()))
    eventually_sync(lambda: _answers(whole_demo))
    whole_demo.await_counts({"healthy": AGENTS}, seconds=180.0)


def _answers(demo: Demo) -> bool:
    try:
        demo.counts()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_agent_that_joins_is_killed_and_retired(demo: Demo) -> None:
    """A page hears of each step; retired it counts no more, though it will not come back. Then a proxy fails, too.

    The last one of the slow tests that have the demo: the agent is known for good.
    """
    demo.await_counts({"healthy": AGENTS})
    home = Database(demo.home)
    rows = json.loads(demo.fleet("ps", "--json"))
    argv = [sys.executable, "-m", "fleet.nodes", "agent", "--name-prefix", "guest", "--announce-ttl", "10s"]
    for role in ("auth", "proxy"):
        argv += [f"--{role}", ",".join(row["grpc"] for row in rows if row["role"] == role)]
    with demo.collect_frames() as frames:
        agent = children.spawn(argv, env=dict(os.environ), cwd=str(ROOT))
        try:
            demo.await_counts({"healthy": AGENTS + 1})
        finally:
            agent.kill()
            agent.wait()
        demo.await_counts({"healthy": AGENTS, "offline": 1})
        refloat = [sys.executable, "-m", "fleet.cli", "retire", "guest-1", "--reason", "it is switched off"]
        argv = [*refloat, "--confirm-alive", "--home", str(demo.home)]
        process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
        assert process.returncode == 0, process.stderr
        demo.await_counts({"healthy": AGENTS, "retired": 1})
        produced(
            home,
            verdicts=("offline", "retired"),
            reasons=("own-host", "none"),
            recoveries=("unclear", "not-needed"),
            actions=("agent.retire",),
        )
        demo.fleet("drain", "proxy-2", "--reason", "to see it")
        demo.fleet("freeze", "proxy-1")
        produced(
            Frames(frames), events=("hello", "headline", "delta", "beat", "layout", "instances", "incidents")
        )
        produced(
            Pages(lambda: [demo.metrics()]),
            metrics=(
                *(
                    "refloat_build_info",
                    "refloat_agents",
                    "refloat_data_age_seconds",
                    "refloat_redis_reachable",
                    "refloat_websocket_connections",
                ),
                *("refloat_instance_health", "refloat_instance_health_since_timestamp_seconds"),
                *("refloat_instance_draining", "refloat_incidents"),
                *("refloat_watchdog_timestamp_seconds", "refloat_alert_evaluation_seconds"),
            ),
        )
        # Incidents of the tests before this one are in the other lists too: only this one is a proxy's.
        produced(home, incident_causes=("proxy",))
        demo.fleet("resume", "proxy-1")
        demo.fleet("undrain", "proxy-2")


@pytest.mark.slow
def test_demo_with_tls_is_polled_with_the_consoles_keys(tmp_path: Path) -> None:
    """Every agent is healthy. That the ports refuse clients without a certificate is in test_fleet_tls.py."""
    small = start_demo(tmp_path, "--tls", "--auths", "1", "--proxies", "1", "--agents", "3")
    try:
        small.await_counts({"healthy": 3})
    finally:
        small.stop()


def test_killed_command_leaves_no_process(demo: Demo) -> None:
    """SIGKILL gives no chance to clean up, and still nothing is left: no server, no worker, no frozen node.

    The last test of the shared demo: it would run beside all others to the end. Ctrl-C ends that of test_redis_lost.py,
    with the same demand.
    """
    family = demo.processes()
    demo.fleet("freeze", "proxy-1")

    demo.process.kill()
    demo.process.wait(timeout=180)

    assert len(family) > 10
    eventually_sync(lambda: all(is_gone(process.pid) for process in family))
