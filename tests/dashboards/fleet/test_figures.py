"""The map's figure: colours that agree with the style sheet, and a scale that puts each state in its own band."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dashboards.fleet import figures
from fleet.vocabulary.verdicts import State

STATIC = Path(figures.__file__).parents[1] / "static" / "dashboards"


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
    assert re.search(r"\.block-bad \{[^}]* color: var\(--ink-stranded\)", sheet)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("state", State)
def test_colourscale_each_state_in_its_own_band(state: State, theme: int) -> None:
    """The middle of a state's band has that state's colour, and its faded twin comes after those of all states."""
    stops = figures.build_colourscale(theme)
    assert len(stops) == 4 * len(State)
    assert (stops[0][0], stops[-1][0]) == (0.0, 1.0)
    assert [stop[0] for stop in stops] == sorted(stop[0] for stop in stops)
    low, high = stops[2 * state], stops[2 * state + 1]
    assert low[1] == high[1] == figures.cell_colour_of(state, theme)
    colour = stops[2 * (state + len(State))][1]
    assert colour != low[1]


def test_only_stranded_is_red() -> None:
    """No other state has a hue near red."""
    for state, colours in ((state, state.look.colours) for state in State):
        for colour in colours:
            red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            assert (red > 2 * max(green, blue)) == (state is State.STRANDED), (state, colour)


def test_map_figure_is_json() -> None:
    """It goes into the page as it is, and names no template of plotly's."""
    figure = json.loads(json.dumps(figures.build_map_figure()))
    assert figure["layout"]["template"] == "none"
    assert figure["trace"]["zmax"] - figure["trace"]["zmin"] == 2 * len(State)
    assert len(figure["colours"]) == len(figure["marks"]) == len(State)
    assert figure["loud"] == [State.STRANDED, State.AT_RISK]


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
