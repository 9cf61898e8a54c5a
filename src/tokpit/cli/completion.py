"""`tokpit completion`: what a shell has to read to complete commands, options and hosts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  tokpit completion bash > ~/.local/share/bash-completion/completions/tokpit
    zsh:   tokpit completion zsh > ~/.zfunc/_tokpit
    fish:  tokpit completion fish > ~/.config/fish/completions/tokpit.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    source = made(ctx.find_root().command, {}, "tokpit", "_TOKPIT_COMPLETE").source()
    # click's script for fish ends each text at its first comma.
    click.echo(source.replace('string split ","', 'string split --max 1 ","'))
