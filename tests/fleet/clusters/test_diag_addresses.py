"""Diag addresses as people enter them: errors say what to enter instead."""

from __future__ import annotations

import pytest

from fleet.clusters.diag_addresses import (
    EDGE_FORM,
    MOST_DIAG_ADDRESSES,
    DiagAddressError,
    find_diag_address_problems,
    format_lines,
    parse_lines,
)


def test_lines_are_instances_with_addresses() -> None:
    """Empty lines are left out; the lines of a cluster come back in their natural order."""
    addresses = parse_lines(["proxy-10 b:3000", "", "  ", "proxy-2\ta:3000 "])
    assert addresses == {"proxy-10": "b:3000", "proxy-2": "a:3000"}
    assert format_lines(addresses) == ["proxy-2 a:3000", "proxy-10 b:3000"]
    assert find_diag_address_problems(addresses | {"auth-1": "[::1]:3000"}) == []


@pytest.mark.parametrize("line", ["auth-1", "auth-1 = a:3000", "auth-1 a:3000 b:3000"])
def test_line_of_another_format(line: str) -> None:
    with pytest.raises(DiagAddressError, match=r"such as auth-1 10\.0\.0\.1:3000"):
        parse_lines([line])


def test_instance_that_is_entered_twice() -> None:
    """Also with the same address: one of the lines is wrong or useless."""
    with pytest.raises(DiagAddressError, match="is entered twice"):
        parse_lines(["auth-1 a:3000", "auth-1 a:3000"])


@pytest.mark.parametrize(
    ("addresses", "part_of_sentence"),
    [
        ({"auth-1": "http://a:3000"}, "is a URL. Enter host:port, such as 10.0.0.1:3000"),
        ({"auth-1": "a"}, "has no port"),
        ({"auth-1": "a:0"}, "from 1 to 65535"),
        ({"auth\x001": "a:1"}, "printable characters without spaces"),
        ({"auth 1": "a:1"}, "printable characters without spaces"),
        ({"": "a:1"}, "is not the name or UUID"),
        ({"a" * 257: "a:1"}, "at most 256"),
        ({"auth-1": "A:3000", "auth-2": "a:3000"}, "is entered for 'auth-1' and 'auth-2'"),
        ({f"auth-{n}": f"a:{n + 1}" for n in range(MOST_DIAG_ADDRESSES + 1)}, "Enter at most 500"),
    ],
)
def test_addresses_that_cannot_be_used(addresses: dict[str, str], part_of_sentence: str) -> None:
    """One sentence each."""
    problems = find_diag_address_problems(addresses)
    assert len(problems) == 1
    assert part_of_sentence in problems[0]
    assert problems[0].isprintable()


def test_edge_instances_have_their_own_limits() -> None:
    """Fewer of them, and names that are a part of paths."""
    assert find_diag_address_problems({"edge-1": "a:1"}, EDGE_FORM) == []
    (problem,) = find_diag_address_problems({"a/b": "a:1"}, EDGE_FORM)
    assert problem.startswith("'a/b' is not the name of an instance")
    (problem,) = find_diag_address_problems({f"e-{n}": f"a:{n + 1}" for n in range(51)}, EDGE_FORM)
    assert problem == "51 gateways and tunnel servers are too many. Enter at most 50."
    with pytest.raises(DiagAddressError, match=r"its name, a space, and the host:port of its --diag-listen"):
        parse_lines(["edge-1"], EDGE_FORM)
