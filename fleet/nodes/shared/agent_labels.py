"""Labels and versions that agents report. Pure. docs/reference/nodes.md, "Labels and version"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

from fleet import __version__
from fleet.nodes.shared.options import ParsedOption, combine
from fleet.protocol import text_limits

#: (key, value) pairs as flags give them: agents take the values of a repeated key in turn.
Labels = tuple[tuple[str, str], ...]

_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/]{0,61}[A-Za-z0-9])?")


def parse_label(text: str) -> tuple[str, str]:
    """Read `KEY=VALUE`. Raises ValueError."""
    key, separator, label_value = text.partition("=")
    if not separator:
        raise ValueError(f"{text!r} is not KEY=VALUE, such as env=prod")
    if _KEY.fullmatch(key) is None:
        raise ValueError(
            f"{key!r} is not a valid label key: use 1 to 63 letters, digits, dots, dashes, underscores and slashes, "
            "with a letter or digit at both ends"
        )
    refusal = text_limits.refusal_of(f"the value of label {key}", label_value)
    if refusal:
        raise ValueError(refusal)
    return key, label_value


def parse_version(text: str) -> str:
    """Read a version. Raises ValueError."""
    refusal = "the version is empty" if not text else text_limits.refusal_of("the version", text)
    if refusal:
        raise ValueError(refusal)
    return text


def labels_of_agent(labels: Labels, number: int) -> dict[str, str]:
    """Return the labels of agent `number`; neighbors have different combinations of values."""
    values_by_key: dict[str, list[str]] = {}
    for key, label_value in labels:
        values_by_key.setdefault(key, []).append(label_value)
    return _pick_combination(values_by_key, number)


def _pick_combination(values_by_key: Mapping[str, Sequence[str]], number: int) -> dict[str, str]:
    combination = {}
    for key, label_values in values_by_key.items():
        number, position = divmod(number, len(label_values))
        combination[key] = label_values[position]
    return combination


def version_of_agent(versions: Sequence[str], number: int, default: str) -> str:
    """Return the version that agent `number` reports: one of `versions` in turn; without any the default."""
    return versions[number % len(versions)] if versions else default


def attributes_of(
    labels: Labels, reported_versions: Sequence[str], number: int
) -> tuple[str, dict[str, str]]:
    """Return version and labels of agent `number`."""
    return version_of_agent(reported_versions, number, __version__), labels_of_agent(labels, number)


def _check_key_count(context: click.Context, option: click.Parameter, labels: Labels) -> Labels:
    key_count = len({key for key, _ in labels})
    if key_count > text_limits.MOST_LABELS:
        raise click.BadParameter(f"{key_count} keys; an agent has at most {text_limits.MOST_LABELS}")
    return labels


attribute_options = combine(
    click.option(
        "--label",
        "labels",
        type=ParsedOption("key=value", parse_label),
        multiple=True,
        callback=_check_key_count,
        help="Label of the agents, such as env=prod. Repeatable; agents take the values of a repeated key in turn. "
        "Default: none.",
    ),
    click.option(
        "--report-version",
        "reported_versions",
        type=ParsedOption("version", parse_version),
        multiple=True,
        help="Version that the agents report instead of their own, for tests of consoles. Repeatable; agents take the "
        "versions in turn.",
    ),
)
