"""Looks of agent states on the map, and colours of the style sheets: contrast of text and of states."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dashboards.fleet import map_looks
from fleet.vocabulary.verdicts import State

STATIC = Path(map_looks.__file__).parents[1] / "static" / "dashboards"


def css_colour(name: str) -> tuple[str, str]:
    """The light and dark value of a custom property in tokens.css."""
    sheet = (STATIC / "css" / "tokens.css").read_text()
    colours = re.search(rf"--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\);", sheet)
    assert colours is not None, name
    return colours[1], colours[2]


def luminance(colour: str) -> float:
    """The relative luminance of a colour, by WCAG 2."""
    shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, by WCAG 2."""
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("ground", ["page", "sunk", "raised"])
@pytest.mark.parametrize("ink", ["ink", "ink-2", "ink-3", "ink-warn", "ink-stranded"])
def test_small_text_is_readable_on_every_ground(ink: str, ground: str, theme: int) -> None:
    """4.5:1, as text below 24 px needs: the numbers of stranded agents above the blocks of the map are 12 px high."""
    assert contrast(css_colour(ink)[theme], css_colour(ground)[theme]) >= 4.5


def test_numbers_above_the_blocks_of_the_map_have_a_colour_for_text() -> None:
    """The colour of the marks is too dark for them."""
    sheet = (STATIC / "css" / "map.css").read_text()
    assert re.search(r"\.block-stranded \{[^}]* color: var\(--ink-stranded\)", sheet)


def test_looks_are_json_in_the_order_of_the_numbers() -> None:
    """The page contains them; what is loud is what incidents count."""
    looks = json.loads(json.dumps(map_looks.looks_as_json()))
    assert len(looks) == len(State)
    assert [number for number, look in enumerate(looks) if look["loud"]] == [State.STRANDED, State.AT_RISK]
    assert looks[State.STRANDED]["rank"] == 0
    assert sorted(look["rank"] for look in looks) == list(range(len(State)))
    assert looks[State.HEALTHY]["doubted"]
    assert not looks[State.STRANDED]["doubted"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_canvas_has_the_colours_of_the_style_sheet(theme: str) -> None:
    """A canvas cannot read custom properties: its copy of the tokens must not drift."""
    script = (STATIC / "js" / "map-theme.js").read_text()
    block = re.search(rf"{theme}: \{{(.*?)\}}", script, re.DOTALL)
    assert block is not None
    colours = dict(re.findall(r'(\w+): "(#\w{6})"', block[1]))
    tokens = {
        "page": "page",
        "block": "sunk",
        "line": "line",
        "dead": "wash-warn",
        "ink": "ink",
        "focus": "focus",
    }
    for name, token in tokens.items():
        assert colours[name] == css_colour(token)[theme == "dark"], name
    assert colours["deadLine"] == State.AT_RISK.look.colours[theme == "dark"]


@pytest.mark.parametrize("theme", [0, 1])
def test_states_differ_in_greyscale(theme: int) -> None:
    """Cells of 3 px have no room for a mark: stranded, at risk and healthy differ in lightness, unknown is hatched."""
    lightness = {
        state: luminance((state.look.cell_colours or state.look.colours)[theme])
        for state in (State.STRANDED, State.AT_RISK, State.HEALTHY)
    }
    darker, middle, lighter = sorted(lightness.values())
    assert (middle + 0.05) / (darker + 0.05) >= 1.5
    assert (lighter + 0.05) / (middle + 0.05) >= 1.5


def test_only_stranded_is_red() -> None:
    """No other state has a hue near red."""
    for state, colours in ((state, state.look.colours) for state in State):
        for colour in colours:
            red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            assert (red > 2 * max(green, blue)) == (state is State.STRANDED), (state, colour)


def _luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("ink", ["ink", "ink-2", "ink-3", "ink-warn"])
def test_text_is_read_on_every_ground(ink: str, theme: int) -> None:
    """4.5:1 on the page, on cards and on each wash: quiet text on a resolved incident had 4.44."""
    grounds = (
        "page",
        "sunk",
        "raised",
        "wash-healthy",
        "wash-warn",
        "wash-stranded",
        "wash-quiet",
        "wash-info",
    )
    text = _luminance(css_colour(ink)[theme])
    for ground in grounds:
        darker, lighter = sorted((text, _luminance(css_colour(ground)[theme])))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, ground
