"""Names of clusters in flags."""

from __future__ import annotations

import click
import pytest

from fleet.nodes.shared.name_options import CLUSTER_NAME


@pytest.mark.parametrize("name", ["default", "a", "eu-west-1", "Teleport.example.com", "x_1", "a" * 64])
def test_name(name: str) -> None:
    """Kept as it is."""
    assert CLUSTER_NAME.convert(name, None, None) == name


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "-a", "a\n", "ä", "a" * 65, "a:b"])
def test_what_is_no_name(name: str) -> None:
    """Refused: it would be another folder, or another key."""
    with pytest.raises(click.BadParameter, match="not a valid cluster name"):
        CLUSTER_NAME.convert(name, None, None)
