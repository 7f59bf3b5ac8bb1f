"""Cluster names in flags."""

from __future__ import annotations

import click
import pytest

from fleet.nodes.shared.name_options import CLUSTER_NAME


@pytest.mark.parametrize("name", ["default", "a", "eu-west-1", "Teleport.example.com", "x_1", "a" * 64])
def test_valid_cluster_name_is_kept(name: str) -> None:
    """The flag's value is the name itself."""
    assert CLUSTER_NAME.convert(name, None, None) == name


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "-a", "a\n", "ä", "a" * 65, "a:b"])
def test_invalid_cluster_name_is_refused(name: str) -> None:
    """The name could lead to another folder or another key."""
    with pytest.raises(click.BadParameter, match="not a valid cluster name"):
        CLUSTER_NAME.convert(name, None, None)
