"""The topology above the map: its counts, nodes, edges and places, and what the page does with them, in Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from fleet.monitoring.columns import NO_INSTANCE
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State
from tests.browser.conftest import Visiting
from tests.browser.map_page import wait_cells
from tests.browser.visits import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Loads the pure modules. `flowOf` draws agents as [state, proxy, auth, cause], with two auths, 0 and 1, and proxies
#: from 2 on; `states` of instances by name, otherwise OK.
LOAD = """
  const load = (name) => import(`/static/dashboards/js/topology-${name}.js`);
  const [{ FlowCounts }, { buildFlow }, { summarizeFailures }, { arrangeFlow }, { tableRows }] =
    await Promise.all(["counts", "flow", "failures", "layout", "table"].map(load));
  const columnsOf = (agents) => ({
    states: Uint8Array.from(agents, ([state]) => state), proxies: Uint16Array.from(agents, ([, proxy]) => proxy),
    auths: Uint16Array.from(agents, ([, , auth]) => auth), causes: Uint16Array.from(agents, ([, , , cause]) => cause),
  });
  const instancesOf = (proxies, states, works, loads) => new Map([...Array(2 + proxies).keys()].map((index) => {
    const kind = index < 2 ? "auth" : "proxy";
    const name = `${kind}-${index < 2 ? index + 1 : index - 1}`;
    const state = states[name] ?? "ok";
    const failing = !["ok", "unknown"].includes(state);
    return [index, {
      index, kind, name, id: `${name}-id`, state, failing, cut_off: ["silent", "gone"].includes(state),
      label: state === "ok" ? "OK" : state, symbol: state, class: `instance-${state}`,
      sentence: failing ? `${name} is ${state}.` : "", current: state !== "silent", load: loads[name] ?? 0,
      work: works[name] ?? "",
    }];
  }));
  const flowOf = ({ agents, proxies = 2, states = {}, works = {}, loads = {}, keys = null, ...rest }) => {
    const { names = [], expanded = [] } = rest;
    const counts = new FlowCounts();
    counts.recount(columnsOf(agents), keys);
    const grouping = keys === null ? null : { describe: (key) => ({ name: names[key] ?? "none", query: "" }) };
    const instances = instancesOf(proxies, states, works, loads);
    return buildFlow({ counts, instances, grouping, expanded: new Set(expanded) });
  };
"""
#: Draws a case. Returns nodes and edges with what tests compare, the failures in words, the table and the places.
DRAW = (
    "async (example) => {"
    + LOAD
    + """
  const flow = flowOf(example);
  const places = arrangeFlow(flow, example.width ?? 1352);
  return {
    agents: flow.agents,
    nodes: Object.values(flow.columns).flat().map(({ filter, folded, instance, ...node }) => ({
      ...node, query: filter?.query ?? null, folded: folded?.size ?? 0, box: places.nodes.get(node.key),
    })),
    edges: flow.edges.map(({ filter, ...edge }) => ({
      ...edge, query: filter?.query ?? null, thickness: places.edges.get(edge.key).thickness,
    })),
    failures: flow.failures.map(({ text }) => text),
    summary: summarizeFailures(flow.failures),
    rows: tableRows(flow),
    width: places.width,
    height: places.height,
  };
}"""
)
#: Applies random changes to random agents. Returns the counts of every step, and how a new count of it differs.
REPLAY = (
    "async ({ seed, agents, steps, groups }) => {"
    + LOAD
    + """
  let value = seed;
  const random = (n) => {
    value = (Math.imul(value, 1664525) + 1013904223) >>> 0;
    return Math.floor((value / 2 ** 32) * n);
  };
  const instance = () => [0, 1, 2, 3, 4, 65534, 65535][random(7)];
  const row = () => [random(10), instance(), instance(), instance()];
  const columns = columnsOf(Array.from({ length: agents }, row));
  const group = () => (random(5) === 0 ? 65535 : random(groups));
  const keys = groups === 0 ? null : Uint16Array.from({ length: agents }, group);
  const counts = new FlowCounts();
  counts.recount(columns, keys);
  const totals = [];
  const differences = [];
  const read = (each, side) => each.read(side).map((cell) => JSON.stringify(cell)).sort().join();
  for (let step = 0; step < steps; step += 1) {
    const changed = Array.from({ length: random(30) }, () => random(agents));
    for (const agent of changed) {
      const { states, proxies, auths, causes } = columns;
      [states[agent], proxies[agent], auths[agent], causes[agent]] = row();
      if (keys !== null) keys[agent] = group();
    }
    counts.update(columns, changed);
    const fresh = new FlowCounts();
    fresh.recount(columns, keys);
    for (const side of ["proxy", "auth"]) if (read(counts, side) !== read(fresh, side)) differences.push([step, side]);
    const total = (side) => counts.read(side).reduce((sum, cell) => sum + cell.agents, 0);
    totals.push([total("proxy"), total("auth"), columns.states.filter((state) => state !== 1).length]);
  }
  return { totals, differences };
}"""
)

NONE, BACKEND = NO_INSTANCE, BACKEND_CAUSE
HEALTHY = [State.HEALTHY, 2, 0, NONE]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(visitor: Visitor) -> AsyncIterator[Page]:
    """A page whose modules can be imported. Tests do not change it."""
    visit = await visitor.begin()
    await visit.fleet.begin()
    yield await visit.open("/")
    await visit.end()


async def draw(page: Page, agents: list[list[int]], **options: Any) -> Any:
    """Return the topology of agents, each as [state, proxy, auth, cause]."""
    await page.wait_for_function("document.getElementById('verdicts') !== null")
    return await page.evaluate(DRAW, {"agents": agents, **options})


def edges_of(flow: Any) -> dict[str, tuple[str, int]]:
    """Return status and number of agents of every edge, by the names of its ends."""
    names = {node["key"]: node["name"] for node in flow["nodes"]}
    return {
        f"{names[edge['from']]} > {names[edge['to']]}": (edge["status"], edge["agents"])
        for edge in flow["edges"]
    }


@pytest.mark.parametrize(("seed", "groups"), [(1, 0), (2, 0), (3, 1), (4, 5), (5, 40)])
async def test_updates_equal_a_new_count(page: Page, seed: int, groups: int) -> None:
    """After every delta, and each side has every agent that is not retired."""
    replay = await page.evaluate(REPLAY, {"seed": seed, "agents": 200, "steps": 40, "groups": groups})
    assert replay["differences"] == []
    assert all(len(set(totals)) == 1 for totals in replay["totals"])


async def test_edges_are_tunnels_and_auth_connections(page: Page) -> None:
    """Each agent has one of each; the worst group is first, and retired agents are left out."""
    agents = [HEALTHY] * 5 + [[State.AT_RISK, 3, 1, NONE], [State.RETIRED, 2, 0, NONE]]
    flow = await draw(page, agents)
    assert edges_of(flow) == {
        "proxy-1 > healthy": ("live", 5),
        "proxy-2 > at risk": ("live", 1),
        "auth-1 > healthy": ("live", 5),
        "auth-2 > at risk": ("live", 1),
    }
    assert [node["name"] for node in flow["nodes"] if node["column"] == "group"] == ["at risk", "healthy"]
    assert (flow["agents"], flow["failures"]) == (6, [])


async def test_tunnels_of_a_silent_proxy_are_lost(page: Page) -> None:
    """In the round that finds it, before its agents are stranded, and after; in red only where agents are stranded."""
    agents = [HEALTHY, HEALTHY, [State.STRANDED, 2, 0, 2], [State.HEALTHY, 3, 0, NONE]]
    flow = await draw(page, agents, states={"proxy-1": "silent"})
    assert edges_of(flow) == {
        "proxy-1 > healthy": ("lost", 2),
        "proxy-1 > stranded": ("lost", 1),
        "proxy-2 > healthy": ("live", 1),
        "auth-1 > healthy": ("live", 3),
        "auth-1 > stranded": ("live", 1),
    }
    tones = {line["to"]: line["tone"] for line in flow["edges"] if line["status"] == "lost"}
    assert tones == {f"group:{State.HEALTHY}": "state-at_risk", f"group:{State.STRANDED}": "state-stranded"}
    assert flow["failures"] == ["proxy-1 (silent): tunnels of 3 agents lost"]
    text = next(edge["text"] for edge in flow["edges"] if edge["tone"] == "state-stranded")
    assert text == "1 agent at proxy-1, tunnels lost: proxy-1 is silent. (agents: stranded)"


@pytest.mark.parametrize("state", ["unhealthy", "expired"])
async def test_connections_fail_while_the_instance_responds(page: Page, state: str) -> None:
    """An agent that its auth strands still has its tunnel; the connection to the auth survives."""
    flow = await draw(page, [HEALTHY, [State.STRANDED, 2, 0, 0]], states={"auth-1": state})
    assert edges_of(flow) == {
        "proxy-1 > healthy": ("live", 1),
        "proxy-1 > stranded": ("live", 1),
        "auth-1 > healthy": ("failing", 1),
        "auth-1 > stranded": ("failing", 1),
    }
    assert flow["failures"] == [f"auth-1 ({state}): auth connections of 2 agents failing"]


@pytest.mark.parametrize(
    ("agents", "load", "state", "numbers"),
    [
        (18, 18, "ok", "18 agents"),
        (18, 58, "ok", "18 agents · 58 tunnels"),
        (18, 58, "unhealthy", "18 agents · 58 tunnels"),
        (1, 2, "ok", "1 agent · 2 tunnels"),
        (0, 2, "ok", "no agents · 2 tunnels"),
        (0, 0, "ok", "no agents"),
        (15, 15, "silent", "15 agents"),
        (12, 15, "silent", "12 agents · had 15 tunnels"),
        (0, 15, "silent", "no agents now, had 15 tunnels"),
        (0, 0, "silent", "no agents"),
    ],
)
async def test_numbers_of_a_proxy_have_units(
    page: Page, agents: int, load: int, state: str, numbers: str
) -> None:
    """Its agents, and the tunnels that it reports if their number differs."""
    flow = await draw(page, [HEALTHY] * agents, loads={"proxy-1": load}, states={"proxy-1": state})
    assert next(node["numbers"] for node in flow["nodes"] if node["name"] == "proxy-1") == numbers


async def test_a_dead_proxy_without_agents_is_a_failure(page: Page) -> None:
    """The summary says of it what its card says."""
    flow = await draw(
        page, [[State.HEALTHY, 3, 0, NONE]], states={"proxy-1": "silent"}, loads={"proxy-1": 15}
    )
    proxy = next(node for node in flow["nodes"] if node["name"] == "proxy-1")
    assert (proxy["isFailing"], proxy["status"]) == (True, "silent")
    assert proxy["box"]["h"] >= 44
    assert flow["summary"] == "proxy-1 (silent): no agents now, had 15 tunnels"


async def test_failing_instances_are_in_natural_order(page: Page) -> None:
    """Auths before proxies, whatever number of agents each has: the same instances as in the blocks."""
    states = dict.fromkeys(("auth-1", "auth-2", "proxy-2", "proxy-10", "proxy-1"), "unhealthy")
    agents = [[State.STRANDED, 3, 1, BACKEND]] * 3 + [[State.STRANDED, 2, 0, BACKEND]]
    flow = await draw(page, agents, proxies=12, states=states)
    assert flow["summary"] == "2 auths and 3 proxies failing: auth-1, auth-2, proxy-1, proxy-2, proxy-10"
    repaired = await draw(page, agents)
    assert repaired["summary"] == (
        "auth-1: auth connections of 1 agent failing · auth-2: auth connections of 3 agents failing"
    )


async def test_a_deregistered_proxy_is_shown_while_it_has_agents(page: Page) -> None:
    """Like its block."""
    agents = [[State.HEALTHY, 3, 0, NONE]]
    flow = await draw(page, agents, states={"proxy-1": "gone"})
    assert [node["name"] for node in flow["nodes"] if node["column"] == "proxy"] == ["proxy-2"]
    assert flow["failures"] == []
    flow = await draw(page, [*agents, [State.STRANDED, 2, 0, 2]], states={"proxy-1": "gone"})
    assert flow["failures"] == ["proxy-1 (gone): tunnels of 1 agent lost"]
    flow = await draw(page, agents, states={"proxy-1": "gone"}, works={"proxy-1": "restarting"})
    assert [node["name"] for node in flow["nodes"] if node["column"] == "proxy"] == ["proxy-1", "proxy-2"]
    assert flow["failures"] == []


async def test_a_planned_restart_is_no_failure(page: Page) -> None:
    """Its agents are moving. An agent that it strands is still stranded, and another dead proxy still fails."""
    works = {"proxy-1": "restarting"}
    flow = await draw(page, [HEALTHY], states={"proxy-1": "silent"}, works=works)
    proxy = next(node for node in flow["nodes"] if node["name"] == "proxy-1")
    assert (proxy["isFailing"], proxy["tone"], proxy["symbol"]) == (False, "state-working", "working")
    assert proxy["status"] == "restarting, silent"
    assert edges_of(flow)["proxy-1 > healthy"] == ("moving", 1)
    assert flow["edges"][0]["text"] == (
        "1 agent at proxy-1, tunnels moving: proxy-1 is restarting, silent (agents: healthy)"
    )
    assert flow["summary"] == "No failing tunnels or auth connections"
    flow = await draw(page, [[State.STRANDED, 2, 0, 2]], states={"proxy-1": "silent"}, works=works)
    assert edges_of(flow)["proxy-1 > stranded"] == ("lost", 1)
    assert flow["summary"] == "proxy-1 (restarting, silent): tunnels of 1 agent lost"
    states = {"proxy-1": "silent", "proxy-2": "silent"}
    flow = await draw(
        page, [HEALTHY], states=states, works={"proxy-1": "agents moving away", "proxy-2": "restarting"}
    )
    assert edges_of(flow)["proxy-1 > healthy"] == ("lost", 1)
    assert flow["summary"] == "proxy-1 (agents moving away, silent): tunnels of 1 agent lost"


async def test_a_lost_backend_fails_the_connections_of_stranded_agents(page: Page) -> None:
    """Also while the auths look fine."""
    flow = await draw(page, [[State.STRANDED, 2, 0, BACKEND], [State.STRANDED, 3, 1, BACKEND]])
    assert edges_of(flow) == {
        "proxy-1 > stranded": ("live", 1),
        "proxy-2 > stranded": ("live", 1),
        "auth-1 > stranded": ("failing", 1),
        "auth-2 > stranded": ("failing", 1),
    }


async def test_an_offline_agent_blames_no_instance(page: Page) -> None:
    """Its tunnel and its connection are lost, probably because of its own host."""
    flow = await draw(page, [[State.OFFLINE, 2, 0, NONE]])
    assert edges_of(flow) == {"proxy-1 > offline": ("lost", 1), "auth-1 > offline": ("lost", 1)}
    assert {edge["tone"] for edge in flow["edges"]} == {"state-offline"}
    assert flow["failures"] == []


async def test_agents_that_never_connected_have_no_edges(page: Page) -> None:
    """Their group has their number."""
    flow = await draw(page, [[State.NEVER, NONE, NONE, NONE]])
    assert flow["edges"] == []
    group = next(node for node in flow["nodes"] if node["column"] == "group")
    assert (group["name"], group["agents"]) == ("never connected", 1)


async def test_unknown_tunnels_are_said_to_be_unknown(page: Page) -> None:
    """The side of the auths works; nothing on the other side is said to be lost."""
    agents = [[State.HEALTHY, NONE, 0, NONE], [State.STRANDED, NONE, 1, NONE]]
    flow = await draw(page, agents)
    assert edges_of(flow) == {
        "tunnels unknown > healthy": ("unknown", 1),
        "tunnels unknown > stranded": ("unknown", 1),
        "auth-1 > healthy": ("live", 1),
        "auth-2 > stranded": ("live", 1),
    }
    assert flow["failures"] == []
    partly = await draw(page, [*agents, HEALTHY])
    assert "no known proxy > healthy" in edges_of(partly)


async def test_agents_in_groups(page: Page) -> None:
    """By a label, for example: lost tunnels are an edge of their own, and the group with the worst state is first."""
    agents = [HEALTHY, [State.HEALTHY, 3, 0, NONE], [State.STRANDED, 2, 0, 2], [State.HEALTHY, 3, 1, NONE]]
    flow = await draw(page, agents, keys=[0, 1, 1, NONE], names=["prod", "test"])
    assert edges_of(flow) == {
        "proxy-1 > prod": ("live", 1),
        "proxy-1 > test": ("lost", 1),
        "proxy-2 > test": ("live", 1),
        "proxy-2 > none": ("live", 1),
        "auth-1 > prod": ("live", 1),
        "auth-1 > test": ("live", 2),
        "auth-2 > none": ("live", 1),
    }
    groups = [node for node in flow["nodes"] if node["column"] == "group"]
    assert [(node["name"], node["agents"]) for node in groups] == [("test", 2), ("prod", 1), ("none", 1)]
    assert groups[0]["words"] == "1 stranded"


async def test_many_proxies_are_folded(page: Page) -> None:
    """Failing ones and those with stranded agents are named; the height stays, and nothing is lost in the numbers."""
    agents = [[State.HEALTHY, 2 + number % 100, number % 2, NONE] for number in range(1000)]
    calm = await draw(page, agents, proxies=100)
    assert [node["name"] for node in calm["nodes"] if node["column"] == "proxy"] == ["100 proxies, all OK"]
    agents[41] = [State.STRANDED, 2 + 41, 1, 1]
    flow = await draw(page, agents, proxies=100, states={"proxy-14": "silent", "proxy-78": "unhealthy"})
    proxies = [node for node in flow["nodes"] if node["column"] == "proxy"]
    assert [node["name"] for node in proxies] == [
        "proxy-14",
        "proxy-42",
        "proxy-78",
        "97 more, all OK",
    ]
    assert (proxies[-1]["folded"], proxies[-1]["query"]) == (97, None)
    assert sum(node["agents"] for node in proxies) == 1000
    assert flow["height"] == calm["height"]
    wide = await draw(page, agents, proxies=100, expanded=["proxy"], states={"proxy-14": "silent"})
    names = [node["name"] for node in wide["nodes"] if node["column"] == "proxy"]
    assert names[:4] == ["Show fewer proxies", "proxy-14", "proxy-42", "proxy-1"]
    assert len(names) == 101


async def test_more_failing_proxies_than_lines(page: Page) -> None:
    """The fold counts those that it hides."""
    states = {f"proxy-{number}": "silent" for number in range(1, 11)}
    agents = [[State.HEALTHY, 2 + number, 0, NONE] for number in range(12)]
    flow = await draw(page, agents, proxies=12, states=states)
    assert [node["name"] for node in flow["nodes"] if node["column"] == "proxy"][-1] == "5 more, 3 failing"
    assert flow["failures"][-1] == "proxy-10 (silent): tunnels of 1 agent lost"
    assert flow["summary"] == (
        "10 proxies failing: proxy-1, proxy-2, proxy-3, proxy-4, proxy-5, proxy-6, proxy-7 and 3 others"
    )


async def test_queries_select_the_agents_of_an_edge(page: Page) -> None:
    """As the list of agents reads them."""
    flow = await draw(page, [HEALTHY])
    assert [edge["query"] for edge in flow["edges"]] == [
        "proxy:proxy-1 state:healthy",
        "auth:auth-1 state:healthy",
    ]
    assert [node["query"] for node in flow["nodes"]] == [
        "proxy:proxy-1",
        "proxy:proxy-2",
        "state:healthy",
        "auth:auth-1",
        "auth:auth-2",
    ]


async def test_table_has_the_numbers_of_the_edges(page: Page) -> None:
    """One row per edge, in the order of the nodes."""
    agents = [HEALTHY, HEALTHY, [State.STRANDED, 3, 1, 3]]
    flow = await draw(page, agents, states={"proxy-2": "silent"})
    assert flow["rows"] == [
        ["proxy-1", "healthy", 2, 0, "tunnels live"],
        ["proxy-2", "stranded", 1, 1, "tunnels lost: proxy-2 is silent"],
        ["auth-1", "healthy", 2, 0, "auth connections live"],
        ["auth-2", "stranded", 1, 0, "auth connections live"],
    ]


@pytest.mark.parametrize(("proxies", "width"), [(1, 1352), (3, 1352), (8, 1352), (8, 320), (100, 1352)])
async def test_nodes_fit_and_do_not_overlap(page: Page, proxies: int, width: int) -> None:
    """A column fills the height; the edge of a single agent is visible."""
    agents = [[State.HEALTHY, 2 + number % proxies, number % 2, NONE] for number in range(3000)]
    agents[0] = [State.STRANDED, 2, 0, 2]
    flow = await draw(page, agents, proxies=proxies, width=width)
    for column in ("proxy", "group", "auth"):
        boxes = [node["box"] for node in flow["nodes"] if node["column"] == column]
        ends = [box["y"] + box["h"] for box in boxes]
        assert all(end < box["y"] for end, box in zip(ends, boxes[1:], strict=False))
        assert ends[-1] == pytest.approx(flow["height"])
        assert min(box["h"] for box in boxes) >= 24
        assert all(box["x"] >= 0 and box["x"] + box["w"] <= flow["width"] + 0.01 for box in boxes)
    assert min(edge["thickness"] for edge in flow["edges"]) >= 1.5
    assert flow["height"] <= 330


def edge(page: Page, text: str) -> Locator:
    """The edge whose name contains a text."""
    return page.locator(f'.flow-edge[aria-label*="{text}"]')


def node(page: Page, name: str) -> Locator:
    """The node with a name."""
    return page.locator(f'.flow-node[aria-label^="{name}"]')


async def test_a_silent_proxy_is_seen_and_filtered(visiting: Visiting) -> None:
    """Its edge breaks in the round that finds it; a click shows only its agents, another one shows all."""
    visit = await visiting()
    await visit.fleet.begin(dict.fromkeys(range(100), State.HEALTHY))
    page = await visit.open("/map/")
    summary = page.locator(".topology-summary")
    await expect(summary).to_have_text("No failing tunnels or auth connections")
    await visit.fleet.silence(0)
    await expect(edge(page, "50 agents at proxy-1, tunnels lost: proxy-1 is not responding")).to_have_count(1)
    await expect(summary).to_have_text("proxy-1 (not responding): tunnels of 50 agents lost")
    await node(page, "proxy-1, not responding").click()
    await expect(node(page, "proxy-1")).to_have_attribute("aria-pressed", "true")
    await expect(page.locator("#place-name")).to_have_text("proxy-1")
    await wait_cells(page, State.HEALTHY + 100, 150)
    assert page.url == f"{visit.url}/map/?proxy=proxy-1"
    await node(page, "proxy-1").click()
    await wait_cells(page, State.HEALTHY, 200)
    await page.click('.chip[data-state="healthy"]')
    await expect(node(page, "healthy")).to_have_attribute("aria-pressed", "true")


async def test_keyboard_moves_between_nodes_and_edges(visiting: Visiting) -> None:
    """One tab stop, arrows along the connections, Enter filters and Escape shows all agents."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/map/")
    await expect(page.locator('.flow [tabindex="0"]')).to_have_count(1)
    await page.focus('.flow [tabindex="0"]')

    async def press(key: str) -> str:
        await page.keyboard.press(key)
        return str(await page.evaluate("document.activeElement.getAttribute('aria-label')"))

    assert (await press("ArrowDown")).startswith("proxy-2, OK")
    assert (await press("Home")).startswith("proxy-1, OK")
    assert (await press("ArrowRight")).startswith("1 agent at proxy-1, tunnels lost")
    await press("Enter")
    await expect(edge(page, "1 agent at proxy-1")).to_have_attribute("aria-pressed", "true")
    await wait_cells(page, State.STRANDED, 1)
    await wait_cells(page, State.HEALTHY + 100, 199)
    assert page.url == f"{visit.url}/map/?state=stranded&proxy=proxy-1"
    assert (await press("ArrowRight")).startswith("stranded")
    await press("Escape")
    await wait_cells(page, State.HEALTHY, 199)
    # The group of the focused node disappears.
    await visit.fleet.change({0: State.HEALTHY})
    await expect(node(page, "stranded")).to_have_count(0)
    assert await page.evaluate("document.activeElement.closest('.flow') !== null")


async def test_table_follows(visiting: Visiting) -> None:
    """The table beside the flow has its numbers, also after a delta."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await page.click(".topology-switch")
    row = page.locator(".topology-table tbody tr").first
    await expect(row).to_have_text("proxy-1healthy500tunnels live")
    await visit.fleet.change({0: State.STRANDED})
    await expect(row).to_have_text("proxy-1stranded11tunnels lost")


async def test_old_data_is_not_shown_as_current(visiting: Visiting) -> None:
    """The sentence about failures gives way to the one about old data."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await expect(page.locator(".topology-summary")).to_be_visible()
    await visit.fleet.go_stale()
    await expect(page.locator(".topology-old")).to_be_visible()
    await expect(page.locator(".topology-summary")).to_be_hidden()
    await expect(node(page, "unknown")).to_have_count(1)
