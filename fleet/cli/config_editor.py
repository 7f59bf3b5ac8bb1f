"""A person edits a networking config in $EDITOR until it can be used, or gives up and finds the text in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from fleet.cli.answers import Failure
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfigError, NetworkingResource

HEAD = "# Save and leave the editor to write it; leave it unchanged, or empty, to write nothing.\n"
_WRONG = "#! "


@dataclass(frozen=True, slots=True)
class Edited:
    """What a person made of a config."""

    text: str
    resource: NetworkingResource


def edit(text: str, base: NetworkingResource) -> Edited:
    """Let a person edit until it can be used. Raises Failure when they give up.

    Revision and origin are not theirs to change: those of `base` stay.
    """
    while True:
        written = _in_editor(text)
        plain = "".join(line for line in written.splitlines(keepends=True) if not line.startswith(_WRONG))
        if not any(line.strip() and not line.startswith("#") for line in plain.splitlines()):
            return Edited(plain, base)
        try:
            found = config_yaml.from_yaml(plain)
            rules.check(rules.with_defaults(found.config), rules.with_defaults(base.config))
        except NetworkingConfigError as error:
            text = try_again(plain, [str(problem) for problem in error.problems])
            continue
        labels = {key: value for key, value in found.labels.items() if key != rules.ORIGIN_LABEL}
        if rules.ORIGIN_LABEL in base.labels:
            labels[rules.ORIGIN_LABEL] = base.labels[rules.ORIGIN_LABEL]
        return Edited(plain, replace(found, labels=labels, revision=base.revision))


def try_again(text: str, problems: Sequence[str]) -> str:
    """Show what is wrong and ask; return the text to go on with, the problems on top. Raises Failure."""
    ask("\n".join(["this cannot be used:", *(f"  {line}" for line in problems)]), "Edit it again?", text)
    return "".join(f"{_WRONG}{line}\n" for line in problems) + text


def ask(sentence: str, question: str, text: str) -> None:
    """Ask whether to go on. Raises Failure when not, with the text kept in a file."""
    click.echo(sentence, err=True)
    try:
        if click.confirm(question, default=True, err=True):
            return
    except click.Abort:  # no terminal, or Ctrl-C
        click.echo(err=True)
    descriptor, path = tempfile.mkstemp(prefix="refloat-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    raise Failure(f"nothing was written; your text is in {Path(path)}")


def _in_editor(text: str) -> str:
    try:
        written = click.edit(text, extension=".yaml", require_save=False)
    except click.ClickException as error:
        raise Failure(f"{error.format_message().rstrip('.')}: is $EDITOR right?") from error
    return written or ""
