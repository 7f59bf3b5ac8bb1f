"""Figures as plotly wants them: colours and layout are decided here, the browser only fills in the cells.

Colours are those of static/dashboards/css/tokens.css (a test holds them equal), but healthy is paler on the map:
it is the ground on which the others must be seen.
"""

from __future__ import annotations

from typing import Any

from fleet.vocabulary.verdicts import State

#: (light, dark) by verdict. Checked for 3:1 against the page, and apart under protan and deutan vision.
COLOURS: dict[State, tuple[str, str]] = {
    State.UNKNOWN: ("#4b4c4e", "#c6c9cc"),
    State.RETIRED: ("#85888c", "#7d8590"),
    State.NEVER: ("#85888c", "#7d8590"),
    State.STRANDED: ("#a81e0b", "#ec2313"),
    State.OFFLINE: ("#85888c", "#7d8590"),
    State.AT_RISK: ("#bd7d0a", "#ffcf55"),
    State.WORKING: ("#0649e6", "#30a6fa"),
    State.DEGRADED: ("#bd7d0a", "#ffcf55"),
    State.EXCESS: ("#2a7268", "#6fbfb4"),
    State.HEALTHY: ("#43a294", "#3e7470"),
}
#: Where a cell of the map differs from the colour of the word.
CELL_COLOURS: dict[State, tuple[str, str]] = {
    State.HEALTHY: ("#9fd0c8", "#285350"),
    State.RETIRED: ("#e6e9eb", "#1d242c"),
    State.NEVER: ("#d3d8dc", "#2d3641"),
}
#: What the filter leaves out is drawn this much of the way to the page.
FADED = 0.86
PAGES = ("#ffffff", "#0d1117")


def cell_colour(state: State, theme: int) -> str:
    """The colour of a cell; theme 0 is light, 1 is dark."""
    return CELL_COLOURS.get(state, COLOURS[state])[theme]


def mix(colour: str, ground: str, share: float) -> str:
    """Blend a colour with `share` of the ground, as `#rrggbb`."""
    pairs = ((int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in pairs)


def colourscale(theme: int) -> list[list[float | str]]:
    """Discrete colours: two stops per value of z. z is the state, or the state + 10 where the filter fades it."""
    solid = [cell_colour(state, theme) for state in State]
    colours = solid + [mix(colour, PAGES[theme], FADED) for colour in solid]
    width = 1 / len(colours)
    stops: list[list[float | str]] = []
    for place, colour in enumerate(colours):
        end = 1.0 if place == len(colours) - 1 else round((place + 1) * width, 6)
        stops += [[round(place * width, 6), colour], [end, colour]]
    return stops


def map_figure() -> dict[str, Any]:
    """One heatmap for the whole fleet: a cell per agent, empty where there is none. The browser sets z and the size."""
    axis = {"visible": False, "fixedrange": True, "showgrid": False, "zeroline": False}
    return {
        "trace": {
            "type": "heatmap",
            "zmin": -0.5,
            "zmax": 2 * len(State) - 0.5,
            "zauto": False,
            # One pixel per cell, scaled up by the browser without smoothing (css/map.css): 30 ms for 100,000 cells,
            # against 240 ms when plotly fills a rectangle for each.
            "zsmooth": "fast",
            "xgap": 0,
            "ygap": 0,
            "showscale": False,
            "hoverinfo": "skip",
            "hoverongaps": False,
        },
        "layout": {
            "template": "none",
            "margin": {"l": 0, "r": 0, "t": 0, "b": 0, "pad": 0},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "showlegend": False,
            "uirevision": "map",
        },
        # No drag, no zoom, no bar of plotly's own: the page has its own cursor, tip and keys.
        "config": {"staticPlot": True, "displayModeBar": False, "responsive": False},
        "colourscales": {"light": colourscale(0), "dark": colourscale(1)},
        "pages": {"light": PAGES[0], "dark": PAGES[1]},
        "colours": {state.slug: list(COLOURS[state]) for state in State},
    }
