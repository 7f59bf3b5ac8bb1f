"""Edit a networking config in $EDITOR until it is valid. Text that is not applied is kept in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from fleet.cli.output import Failure
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfigError, NetworkingResource

INSTRUCTIONS = (
    "# Save and close the editor to apply the config. An unchanged or empty file changes nothing.\n"
)
_PROBLEM_PREFIX = "#! "


@dataclass(frozen=True, slots=True)
class EditedConfig:
    """A config after editing: its text, and the resource that the text describes."""

    text: str
    resource: NetworkingResource


def edit(text: str, base: NetworkingResource) -> EditedConfig:
    """Open the editor until the config is valid, and return it. Raises Failure when the user gives up.

    Revision and origin cannot be edited: those of `base` stay.
    """
    while True:
        edited_text = _open_editor(text)
        config_text = "".join(
            line for line in edited_text.splitlines(keepends=True) if not line.startswith(_PROBLEM_PREFIX)
        )
        if not any(line.strip() and not line.startswith("#") for line in config_text.splitlines()):
            return EditedConfig(config_text, base)
        try:
            resource = config_yaml.from_yaml(config_text)
            rules.check(rules.with_defaults(resource.config), rules.with_defaults(base.config))
        except NetworkingConfigError as error:
            text = ask_to_retry(config_text, [str(problem) for problem in error.problems])
            continue
        labels = {key: label for key, label in resource.labels.items() if key != rules.ORIGIN_LABEL}
        if rules.ORIGIN_LABEL in base.labels:
            labels[rules.ORIGIN_LABEL] = base.labels[rules.ORIGIN_LABEL]
        return EditedConfig(config_text, replace(resource, labels=labels, revision=base.revision))


def ask_to_retry(text: str, problems: Sequence[str]) -> str:
    """Show the problems, ask whether to edit again, and return the text with the problems on top. Raises Failure."""
    confirm_or_save_text(
        "\n".join(["the config is invalid:", *(f"  {line}" for line in problems)]), "Edit again?", text
    )
    return "".join(f"{_PROBLEM_PREFIX}{line}\n" for line in problems) + text


def confirm_or_save_text(sentence: str, question: str, text: str) -> None:
    """Ask whether to continue. If not, write the text to a file and raise Failure that names it."""
    click.echo(sentence, err=True)
    try:
        if click.confirm(question, default=True, err=True):
            return
    except click.Abort:  # no terminal, or Ctrl-C
        click.echo(err=True)
    descriptor, path = tempfile.mkstemp(prefix="refloat-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    raise Failure(f"nothing was changed; your text is saved in {Path(path)}")


def _open_editor(text: str) -> str:
    try:
        edited_text = click.edit(text, extension=".yaml", require_save=False)
    except click.ClickException as error:
        raise Failure(f"{error.format_message().rstrip('.')}: check $EDITOR") from error
    return edited_text or ""
