"""`refloat completion`: scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    bash: add `eval "$(refloat completion bash)"` to ~/.bashrc. zsh: the same in ~/.zshrc. fish: save the output as
    ~/.config/fish/completions/refloat.fish.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "refloat", "_REFLOAT_COMPLETE").source())
