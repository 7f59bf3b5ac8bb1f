"""Snippets say what they mean to whoever reads them."""

from __future__ import annotations

import shlex

import yaml

from fleet.protocol.policies import snippets
from fleet.protocol.recovery.service_config import RFD_VARIABLE

_VALUES = {RFD_VARIABLE: '{"a": "it\'s 5% of $HOME\\n"}', "B": "1m"}


def test_values_survive() -> None:
    """Quotes, dollars and backslashes come out as they went in."""
    shell = snippets.shell("auth", _VALUES)
    assert shlex.split(shell.splitlines()[1])[1] == f"{RFD_VARIABLE}={_VALUES[RFD_VARIABLE]}"
    composed = yaml.safe_load(snippets.compose("auth", _VALUES))["services"]["auth"]["environment"]
    assert composed[RFD_VARIABLE].replace("$$", "$") == _VALUES[RFD_VARIABLE]
    helm = yaml.safe_load(snippets.helm("auth", _VALUES))["auth"]["extraEnv"]
    assert {one["name"]: one["value"] for one in helm} == _VALUES
    unit = snippets.systemd("auth", _VALUES)
    assert "5%% of $HOME\\\\n" in unit
    assert '\\"a\\"' in unit


def test_every_kind_or_none() -> None:
    """Nothing wanted, nothing to write."""
    assert [kind for kind, _ in snippets.all_of("auth", _VALUES)] == [
        "systemd",
        "compose",
        "Helm",
        "shell",
    ]
    assert snippets.all_of("auth", {}) == ()
