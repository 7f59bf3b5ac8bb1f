"""Make the pictures of the documents: the steps of the tutorial in a demo (docs/tutorial/first-recovery.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tests.flow.running import Demo
from tests.pictures.calm_demo import run_calm_demo, run_refloat, wait_until
from tests.pictures.faults import confirm
from tests.pictures.windows import THEMES, Window, open_windows

#: Of the demo that `make demo` starts: agents, those of one proxy, and those of auth-1.
_AGENTS, _PROXY_AGENTS, _AUTH_AGENTS = 200, 50, 67
#: Width and height of each picture by its name, px.
SIZE_BY_NAME = {
    "fleet-now": (1280, 740),
    "map": (1400, 900),
    "agent-stranded": (1280, 600),
    "incidents-recovered": (1280, 320),
    "map-auth": (1400, 900),
    "agent-at-risk": (1280, 340),
    "campaign": (1280, 560),
}


async def photograph_docs(folder: Path) -> None:
    """Write each picture in both themes into `folder`, which exists: NAME-light.png and NAME-dark.png."""
    async with run_calm_demo(_AGENTS) as demo, open_windows(demo, *THEMES) as windows:
        await _save(windows, folder, "fleet-now", "/")
        await _freeze_proxy(demo, windows, folder)
        await _cut_auth(demo, windows, folder)


async def _freeze_proxy(demo: Demo, windows: Sequence[Window], folder: Path) -> None:
    for window in windows:
        await window.open("/map/")
    await run_refloat(demo, ("fleet", "freeze", "proxy-1"))
    await wait_until(lambda: demo.counts().get("stranded") == _PROXY_AGENTS)
    await _wait_headline(windows, f"{_PROXY_AGENTS} agents stranded")
    await _save(windows, folder, "map")
    # The agents recover within seconds.
    await _save(windows, folder, "agent-stranded", _path_of_first(demo, "stranded"))
    await wait_until(lambda: demo.counts() == {"healthy": _AGENTS})
    await wait_until(lambda: _affected_counts(demo) == [0])
    await _save(windows, folder, "incidents-recovered", "/incidents/")
    await run_refloat(demo, ("fleet", "resume", "proxy-1"))
    # The old tunnels work again for a few seconds.
    await wait_until(lambda: "excess" in demo.counts())
    await wait_until(lambda: demo.counts() == {"healthy": _AGENTS})


async def _cut_auth(demo: Demo, windows: Sequence[Window], folder: Path) -> None:
    for window in windows:
        await window.open("/map/")
    await run_refloat(demo, ("fleet", "block-backend", "auth-1"))
    await wait_until(
        lambda: demo.counts().get("at_risk", 0) + demo.counts().get("stranded", 0) == _AUTH_AGENTS
    )
    await _wait_headline(windows, "auth-1")
    # Within seconds, the first agents are stranded.
    await _save(windows, folder, "agent-at-risk", _path_of_first(demo, "at_risk"))
    await _save(windows, folder, "map-auth", "/map/")
    # A campaign aborts if the number of stranded agents rises while it runs.
    await wait_until(lambda: demo.counts().get("stranded") == _AUTH_AGENTS)
    campaign = ("reconnect", "start", "--auth", "auth-1", "--verify", *confirm("auth-1 lost its backend"))
    await run_refloat(demo, campaign)
    number = demo.get("changes")["changes"][0]["id"]
    await _save(windows, folder, "campaign", f"/changes/{number}/")
    await run_refloat(demo, ("fleet", "unblock-backend", "auth-1"))


async def _save(windows: Sequence[Window], folder: Path, name: str, path: str = "") -> None:
    """Save the page at `path`, or the one that is open, in the theme of each window."""
    for window in windows:
        if path:
            await window.open(path)
        await window.photograph(folder / f"{name}-{window.theme}", *SIZE_BY_NAME[name])


async def _wait_headline(windows: Sequence[Window], text: str) -> None:
    """Wait until the headline contains this text."""
    for window in windows:
        await window.page.wait_for_selector(f'#headline-text:has-text("{text}")')


def _affected_counts(demo: Demo) -> list[int]:
    """Return the number of agents that each open incident affects now."""
    return [incident["affected_count"] for incident in demo.get("incidents?state=open")["incidents"]]


def _path_of_first(demo: Demo, slug: str) -> str:
    """Return the path of the page of the first agent in this state."""
    agent = demo.get(f"agents?state={slug}")["agents"][0]
    return f"/agents/{quote(agent['id'])}/"
