"""Pure parts of the map in Chromium: blocks, layout, groups, problems, queries."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page

from fleet.monitoring.columns import NO_INSTANCE
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State
from tests.browser.conftest import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Sizes of a visible part, px.
SCREENS = [(1040, 690), (330, 340), (2500, 1200)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(visitor: Visitor) -> Any:
    """A page that has the agent states, as the modules need."""
    visit = await visitor.begin()
    yield await visit.open("/agents/")
    await visit.end()


async def call(page: Page, module: str, body: str, argument: Any = None) -> Any:
    """Return the result of a function body, in which `m` is a module of the console and `a` the argument."""
    return await page.evaluate(
        f"async (a) => {{ const m = await import('/static/dashboards/js/{module}.js'); {body} }}", argument
    )


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize(
    ("agents", "blocks"), [(16, 4), (200, 4), (5000, 25), (20000, 50), (100000, 200), (100000, 1)]
)
async def test_layout_fits_the_screen(page: Page, agents: int, blocks: int, screen: tuple[int, int]) -> None:
    """Whatever the size of the fleet; the cells of a block do not leave it, and a point in a cell is in no other."""
    layout = await call(
        page,
        "map-layout",
        """
        const layout = m.arrange(Array(a.blocks).fill(a.agents / a.blocks), ...a.screen);
        const block = layout.blocks.at(-1);
        const number = layout.blocks.length - 1;
        const isOutside = ({ x, y, w, h }) =>
          x < block.x || y < block.y || x + w > block.x + block.w || y + h > block.y + block.h;
        const outside = [], elsewhere = [];
        for (let cell = 0; cell < block.cells; cell++) {
          const rect = m.rectOf(layout, number, cell);
          if (isOutside(rect)) outside.push(cell);
          const at = m.cellAt(layout, rect.x + rect.w / 2, rect.y + rect.h / 2);
          if (at?.number !== number || at?.cell !== cell) elsewhere.push([cell, at]);
        }
        return { ...layout, outside, elsewhere };
        """,
        {"agents": agents, "blocks": blocks, "screen": screen},
    )
    assert layout["height"] <= screen[1]
    assert all(block["x"] + block["w"] <= screen[0] for block in layout["blocks"])
    assert len(layout["blocks"]) == blocks
    assert layout["outside"] == []
    assert layout["elsewhere"] == []


async def test_small_fleets_have_large_cells_and_large_fleets_an_overview(page: Page) -> None:
    """Names for 200 agents, one cell each for 20,000, several agents per cell for 100,000."""
    layouts = await call(
        page,
        "map-layout",
        "return a.map(([n, blocks]) => m.arrange(Array(blocks).fill(n / blocks), 1040, 690));",
        [(16, 4), (200, 4), (20000, 50), (100000, 200)],
    )
    assert [layout["named"] for layout in layouts] == [True, True, False, False]
    assert layouts[0]["cell"]["w"] >= 200
    assert [layout["perCell"] for layout in layouts[:3]] == [1, 1, 1]
    assert layouts[2]["cell"]["w"] >= 3
    assert layouts[3]["perCell"] > 1
    assert layouts[3]["header"] == "line"


async def test_zoom_ends_at_one_agent_per_cell_and_at_the_screen(page: Page) -> None:
    """Larger cells make a higher map; below the overview there is nothing."""
    layouts = await call(
        page,
        "map-layout",
        "return a.map((zoom) => m.arrange(Array(200).fill(500), 1040, 690, zoom));",
        [0, 4, 8, 1000],
    )
    assert layouts[0]["zoom"] == 0
    assert layouts[1]["perCell"] < layouts[0]["perCell"]
    assert layouts[2]["perCell"] == 1
    assert layouts[2]["cell"]["w"] >= 3
    assert layouts[2]["height"] > 690
    assert layouts[3]["named"]
    assert layouts[3]["zoom"] < 1000


async def test_cursor_reaches_every_block_and_skips_empty_cells(page: Page) -> None:
    """By arrow keys alone."""
    cells = await call(
        page,
        "map-layout",
        """
        const layout = m.arrange([4, 4, 4, 4], 1040, 690);
        const seen = [];
        const walk = (from, dx, dy) => {
          const isEmpty = (number, cell) => number === 1 && cell === 0;
          for (let at = from; at !== null; at = m.step(layout, at, dx, dy, isEmpty)) seen.push([at.number, at.cell]);
        };
        walk({ number: 0, cell: 0 }, 0, 1);
        walk({ number: 0, cell: 0 }, 1, 0);
        const [number, cell] = seen.at(-1);
        walk({ number, cell }, 0, 1);
        return seen;
        """,
    )
    assert {number for number, _ in cells} == {0, 1, 2, 3}
    assert [1, 0] not in cells


async def test_rectangle_finds_the_cells_that_it_touches(page: Page) -> None:
    """And nothing where it only touches a header."""
    cells = await call(
        page,
        "map-layout",
        """
        const layout = m.arrange([9, 9], 1040, 690);
        const whole = m.cellsIn(layout, { x: 0, y: 0, w: 1040, h: 690 });
        const one = m.rectOf(layout, 1, 0);
        const header = layout.blocks[0];
        const inside = m.cellsIn(layout, { x: one.x + 2, y: one.y + 2, w: 1, h: 1 });
        return [whole.length, inside, m.cellsIn(layout, { x: header.x + 9, y: header.y + 2, w: 5, h: 5 })];
        """,
    )
    assert cells == [18, [{"number": 1, "cell": 0}], []]


async def test_agents_keep_their_slots(page: Page) -> None:
    """An agent that leaves leaves an empty slot and gets it back; one that joins gets the last."""
    steps = await call(
        page,
        "map-blocks",
        """
        const blocks = new m.Blocks(10);
        const states = Uint8Array.from([9, 9, 9, 9]);
        const slots = () => [1, 2].map((key) => blocks.block(key).slots.slice());
        const result = [];
        for (const keys of a) result.push([blocks.sync(Uint16Array.from(keys), states), slots()]);
        blocks.compact();
        return [...result, slots(), blocks.emptyShare];
        """,
        [[1, 1, 2, 2], [1, 2, 2, 2], [1, 1, 2, 2], [2, 1, 2, 2]],
    )
    assert steps[0] == [[], [[0, 1], [2, 3]]]
    assert steps[1] == [[{"agent": 1, "key": 1, "slot": 1}], [[0, -1], [2, 3, 1]]]
    assert steps[2] == [[{"agent": 1, "key": 2, "slot": 2}], [[0, 1], [2, 3, -1]]]
    assert steps[3][1] == [[-1, 1], [2, 3, -1, 0]]
    assert steps[4:] == [[[1], [0, 2, 3]], 0]


async def test_counts_follow_states_and_moves(page: Page) -> None:
    """Counts of a block equal a count of its agents, whatever changed."""
    is_equal = await call(
        page,
        "map-blocks",
        """
        const blocks = new m.Blocks(10);
        let seed = 1;
        const chance = (n) => (seed = (seed * 16807) % 2147483647) % n;
        for (let round = 0; round < 50; round += 1) {
          const size = 100 + round;
          const keys = Uint16Array.from({ length: size }, () => chance(5));
          blocks.sync(keys, Uint8Array.from({ length: size }, () => chance(10)));
          for (const [key, { counts, size: agents, slots }] of blocks.byKey) {
            const expected = new Int32Array(10);
            blocks.keys.forEach((each, agent) => { if (each === key) expected[blocks.states[agent]] += 1; });
            if (String(expected) !== String(counts)) return [round, key];
            if (agents !== slots.filter((agent) => agent >= 0).length) return [round, key, "size"];
            if (slots.some((agent, slot) => agent >= 0 && blocks.slots[agent] !== slot)) return [round, key, "slot"];
          }
        }
        return true;
        """,
    )
    assert is_equal is True


def _instance(index: int, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    state = {"state": "ok", "label": "OK", "sentence": "", "draining": False}
    load = {"current": True, "load": 10, "imbalance": None}
    return {"index": index, "kind": kind, "name": name, "region": "", **state, **load, **fields}


async def test_groups_by_column(page: Page) -> None:
    """Blocks of proxies without agents exist, those of deregistered ones do not; agents without one come last."""
    instances = [
        _instance(0, "auth", "auth-1"),
        _instance(1, "proxy", "proxy-10", region="eu"),
        _instance(2, "proxy", "proxy-2"),
        _instance(3, "proxy", "proxy-3", state="gone"),
    ]
    blocks = await call(
        page,
        "map-groupings",
        """
        const instances = new Map(a.instances.map((instance) => [instance.index, instance]));
        const column = (...indices) => Uint16Array.from(indices);
        const state = {
          states: Uint8Array.from([9, 3]), proxies: column(1, 65535), auths: column(0, 0), causes: column(65535, 65534),
        };
        return ["proxy", "auth", "cause", "region", "state"].map((name) => {
          const { keys, shown, describe } = m.groupAgents(name, { state, instances, remote: null });
          return m.orderKeys(keys, shown, describe).map((key) => [describe(key).name, describe(key).query]);
        });
        """,
        {"instances": instances},
    )
    assert blocks == [
        [["proxy-2", "proxy:proxy-2"], ["proxy-10", "proxy:proxy-10"], ["No proxy known", ""]],
        [["auth-1", "auth:auth-1"]],
        [["Auth backend", "cause:backend"], ["No cause", ""]],
        [["eu", ""], ["No region known", ""]],
        [["healthy", "state:healthy"], ["stranded", "state:stranded"]],
    ]


async def test_problems_name_the_cause_first(page: Page) -> None:
    """By stranded agents; what fails because of another instance, or of the backend, is counted with it; in the words
    of the headline if it has the cause."""
    instances = [
        _instance(0, "auth", "auth-1", state="unhealthy", label="unhealthy"),
        _instance(1, "proxy", "proxy-1", state="silent", label="not responding"),
        _instance(2, "proxy", "proxy-2", state="unhealthy", label="unhealthy", cause=0),
        _instance(3, "proxy", "proxy-3", state="ok", label="draining", draining=True),
    ]
    script = """
        const instances = new Map(a.instances.map((instance) => [instance.index, instance]));
        const problems = m.findProblems(a, instances, a.clauses);
        return problems.map((problem) => `${problem.name}: ${m.describeProblem(problem)}`);
        """
    states = [State.AT_RISK, State.STRANDED, State.STRANDED, State.HEALTHY, State.STRANDED]
    columns = {"states": states, "causes": [0, 1, 1, NO_INSTANCE, NO_INSTANCE], "instances": instances}
    columns["clauses"] = [{"key": "auth/a", "name": "auth-1", "description": "auth-1 lost its backend"}]
    assert await call(page, "map-problems", script, columns) == [
        "proxy-1: not responding, 2 stranded",
        "Unknown cause: 1 stranded",
        "auth-1: lost its backend, 1 at risk, 1 proxy fails with it",
        "proxy-3: draining",
    ]
    columns |= {"causes": [BACKEND_CAUSE, 1, 1, NO_INSTANCE, NO_INSTANCE]}
    columns["clauses"] = [
        {"key": "backend/default", "name": "backend", "description": "all 3 auths lost their backend"}
    ]
    assert await call(page, "map-problems", script, columns) == [
        "Auth backend: all 3 auths lost their backend, 1 at risk, 1 auth and 1 proxy fail with it",
        "proxy-1: not responding, 2 stranded",
        "Unknown cause: 1 stranded",
        "proxy-3: draining",
    ]


async def test_problems_of_equal_weight_are_in_natural_order(page: Page) -> None:
    """Whatever order the agents are in; an instance that a rollout restarts is no problem, unless it strands agents."""
    silent = {"state": "silent", "label": "not responding"}
    instances = [
        _instance(0, "auth", "auth-1", **silent),
        _instance(1, "proxy", "proxy-1", **silent),
        _instance(2, "proxy", "proxy-2", **silent),
        _instance(3, "proxy", "proxy-3", work="restarting", **silent),
    ]
    script = """
        const instances = new Map(a.instances.map((instance) => [instance.index, instance]));
        const list = (causes) => m.findProblems({ states: causes.map(() => a.stranded), causes }, instances)
          .map((problem) => `${problem.name}: ${m.describeProblem(problem)}${problem.isDown ? " (down)" : ""}`);
        return [list([]), list([2, 1, 65535]), list([3])];
        """
    argument = {"instances": instances, "stranded": State.STRANDED}
    assert await call(page, "map-problems", script, argument) == [
        ["auth-1: not responding (down)", "proxy-1: not responding (down)", "proxy-2: not responding (down)"],
        [
            "proxy-1: not responding, 1 stranded (down)",
            "proxy-2: not responding, 1 stranded (down)",
            "Unknown cause: 1 stranded",
            "auth-1: not responding (down)",
        ],
        [
            "proxy-3: restarting, not responding, 1 stranded",
            "auth-1: not responding (down)",
            "proxy-1: not responding (down)",
            "proxy-2: not responding (down)",
        ],
    ]


async def test_numbers_of_a_header_have_units(page: Page) -> None:
    """Agents, and tunnels if their number differs; the imbalance names what it is compared with."""
    cases = [
        [10, _instance(0, "proxy", "proxy-1")],
        [4, _instance(0, "proxy", "proxy-1", imbalance=0.4)],
        [10, _instance(0, "proxy", "proxy-1", imbalance=-0.25)],
        [0, _instance(0, "proxy", "proxy-1", load=0, imbalance=-1)],
        [0, _instance(0, "proxy", "proxy-1", current=False, imbalance=0.4)],
        [0, _instance(0, "auth", "auth-1", current=False)],
        [9, _instance(0, "auth", "auth-1")],
        [9, None],
    ]
    assert await call(page, "map-words", "return a.map((each) => m.loadParts(...each).join(''));", cases) == [
        "10 agents",
        "4 agents · 10 tunnels · 40 % over average",
        "10 agents · 25 % under average",
        "no agents",
        "no agents now, had 10 tunnels",
        "no agents now, had 10",
        "9 agents",
        "9 agents",
    ]


async def test_state_of_an_instance_has_what_a_change_does_with_it(page: Page) -> None:
    """An instance that restarts on purpose does not respond either."""
    instances = [
        {"label": "OK", "work": ""},
        {"label": "OK", "work": "agents moving away"},
        {"label": "not responding", "work": "restarting"},
        {"label": "unhealthy"},
    ]
    assert await call(page, "map-words", "return a.map(m.describeState);", instances) == [
        "OK",
        "agents moving away",
        "restarting, not responding",
        "unhealthy",
    ]


async def test_address_keeps_the_view(page: Page) -> None:
    """What is written into the address is read from it."""
    view = {
        "group": "auth",
        "zoom": 3,
        "states": ["stranded", "at_risk"],
        "query": "web -proxy:a",
        "proxy": "proxy-1",
        "auth": "",
        "epoch": "e1",
        "selected": [7, 1, 2, 3],
        "isTable": True,
    }
    text, read, usual = await call(
        page,
        "map-query",
        """
        const text = m.formatAddress(a);
        const usual = { group: "proxy", zoom: 0, states: [], query: "", proxy: "", selected: [], isTable: false };
        return [text, m.parseAddress(text), m.formatAddress({ ...a, ...usual })];
        """,
        view,
    )
    assert "selected=e1%3A1-3%2C7" in text
    assert read == {name: view[name] for name in view if name != "selected"} | {"selection": "1-3,7"}
    assert usual == ""


@pytest.mark.parametrize(
    ("text", "indices"),
    [("1-3,7", [1, 2, 3, 7]), ("", []), ("x,2,9-", [2]), ("8-99999999", []), ("8-99", [8, 9])],
)
async def test_indices_of_an_address(page: Page, text: str, indices: list[int]) -> None:
    """What is no index of an agent is left out."""
    assert await call(page, "map-query", "return m.parseIndices(a, 10);", text) == indices


@pytest.mark.parametrize(
    ("blocks", "ids", "query"),
    [
        (["proxy:a", "proxy:b"], None, "proxy:a proxy:b"),
        (["proxy:a", "auth:b"], ["x"], "id:x"),
        ([""], ["x", "a b"], 'id:x "id:a b"'),
        (None, None, ""),
        (None, ["long" * 20] * 200, ""),
    ],
)
async def test_query_of_a_selection(
    page: Page, blocks: list[str] | None, ids: list[str] | None, query: str
) -> None:
    """Whole blocks of one kind by their query, otherwise ids, as far as an address holds them."""
    assert (
        await call(
            page, "map-query", "return m.selectionQuery(a.blocks, a.ids);", {"blocks": blocks, "ids": ids}
        )
        == query
    )


async def test_colours_fade_into_the_page(page: Page) -> None:
    """And ink is chosen by the colour below it."""
    colours = await call(
        page,
        "map-colours",
        """
        const mixed = [m.fade("#000000", "#ffffff"), m.mix("#204060", "#406080", 0.5)];
        return [...mixed, m.pixelOf("#010203"), m.inkOn("#a81e0b"), m.inkOn("#9fd0c8")];
        """,
    )
    assert colours == ["#dbdbdb", "#305070", 0xFF030201, "#ffffff", "#0d1117"]


async def test_only_a_sample_of_many_moves_is_drawn(page: Page) -> None:
    """Evenly spread."""
    assert await call(page, "map-overlay", "return m.sample(a, 3);", [1, 2]) == [1, 2]
    assert await call(page, "map-overlay", "return m.sample(a, 3);", list(range(9))) == [0, 3, 6]


async def test_canvas_of_a_new_size_has_the_colour_of_the_page(page: Page) -> None:
    """Until there is data: an opaque canvas would be black."""
    pixel = await call(
        page,
        "map-paint",
        """
        const painter = new m.Painter(document.createElement("canvas"), []);
        const names = ["page", "block", "line", "dead", "deadLine", "stranding", "strandingLine"];
        const theme = Object.fromEntries(names.map((name) => [name, "#000000"]));
        painter.resize(40, 30, { ...theme, page: "#f2f4f6" });
        return [...painter.context.getImageData(20, 15, 1, 1).data];
        """,
    )
    assert pixel == [0xF2, 0xF4, 0xF6, 0xFF]
