from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fleet.nodes.shared import agent_labels


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("env=prod", ("env", "prod")),
        ("topology.kubernetes.io/zone=eu-1a", ("topology.kubernetes.io/zone", "eu-1a")),
        ("note=a=b c", ("note", "a=b c")),
        ("empty=", ("empty", "")),
    ],
)
def test_label_is_parsed(text: str, label: tuple[str, str]) -> None:
    """Only the first equals sign separates key and value."""
    assert agent_labels.parse_label(text) == label


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env", "is not KEY=VALUE"),
        ("=prod", "not a valid label key"),
        ("a b=prod", "not a valid label key"),
        (f"{'k' * 64}=prod", "not a valid label key"),
        (f"env={'v' * 257}", "the value of label env is longer than 256 characters"),
        ("env=a\tb", "the value of label env contains unprintable characters"),
    ],
)
def test_invalid_label_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent_labels.parse_label(text)


@pytest.mark.parametrize("text", ["", "1\n2", "v" * 257])
def test_invalid_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the version"):
        agent_labels.parse_version(text)


def test_agents_take_the_values_of_a_repeated_key_in_turn() -> None:
    """Agents in a row have all combinations before one occurs again."""
    flags = (("role", "web"), ("env", "prod"), ("role", "db"), ("env", "dev"), ("owner", "ops"))
    combinations = [agent_labels.labels_of_agent(flags, number) for number in range(4)]

    assert {(combination["role"], combination["env"]) for combination in combinations} == {
        *(("web", "prod"), ("web", "dev"), ("db", "prod"), ("db", "dev"))
    }
    assert {combination["owner"] for combination in combinations} == {"ops"}
    assert agent_labels.labels_of_agent(flags, 4) == combinations[0]
    assert agent_labels.labels_of_agent((), 7) == {}


def test_agents_take_reported_versions_in_turn() -> None:
    assert [agent_labels.version_of_agent(("2", "1"), number, "0") for number in range(3)] == ["2", "1", "2"]
    assert agent_labels.version_of_agent((), 3, "0") == "0"


def test_too_many_keys_are_refused() -> None:
    """Values of one key in turn do not count. Errors name the option and the reason."""

    @click.command()
    @agent_labels.attribute_options
    def command(labels: agent_labels.Labels, reported_versions: tuple[str, ...]) -> None:
        click.echo(agent_labels.attributes_of(labels, reported_versions, 1))

    def run(*texts: str) -> str:
        return CliRunner().invoke(command, [part for text in texts for part in ("--label", text)]).output

    assert run(*(f"env={number}" for number in range(200))).endswith("{'env': '1'})\n")
    assert "'--label': 65 keys; an agent has at most 64" in run(*(f"k{number}=" for number in range(65)))
    assert "'--label': 'env' is not KEY=VALUE, such as env=prod" in run("env")
