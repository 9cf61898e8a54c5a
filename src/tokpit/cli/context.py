"""What every command shares: the options of the group, and a session made from them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tokpit.ops.gate import ConfirmRequest
    from tokpit.ops.session import Session

T = TypeVar("T")


class Options:
    """Options of the group, and the opener of the cockpit."""

    def __init__(self, open_app: Callable[..., Any] | None = None) -> None:
        self.open_app = open_app
        self.read_only = False
        self.inventory: str | None = None
        self.history: str | None = None
        self.theme: str | None = None

    def session(self, *, yes: bool = False) -> Session:
        """A session on the inventory, which asks on this terminal. Raises ConfigError."""
        from tokpit.config.inventory import load_inventory
        from tokpit.ops.session import Session

        inventory = load_inventory(Path(self.inventory) if self.inventory else None)
        session = Session(
            inventory,
            history_path=Path(self.history) if self.history else None,
            read_only=self.read_only,
            assume_yes=yes,
        )
        if sys.stdin.isatty() and sys.stderr.isatty():
            session.confirm = ask_confirm
            session.prompt = ask_prompt
        return session

    def run(self, work: Callable[[Session], Awaitable[T]], *, yes: bool = False) -> T:
        """Run `work` with a session, and close the session however it ends."""

        async def main() -> T:
            async with self.session(yes=yes) as session:
                return await work(session)

        return asyncio.run(main())


async def ask_confirm(request: ConfirmRequest) -> bool:
    """Show what will run and ask once, on stderr, so that stdout stays clean."""
    from tokpit.domain.text import mask_secrets

    click.echo(mask_secrets(f"{request.title}:"), err=True)
    for line in request.lines:
        click.echo(mask_secrets(f"    {line}"), err=True)
    for warning in request.warnings:
        click.echo(mask_secrets(f"  warning: {warning}"), err=True)
    try:
        if request.typed_word:
            word = await asyncio.to_thread(
                click.prompt, f"type {request.typed_word} to do it", default="", show_default=False, err=True
            )
            return bool(word == request.typed_word)
        return await asyncio.to_thread(click.confirm, "do it?", default=False, err=True)
    except click.Abort:
        return False


async def ask_prompt(kind: str, question: str) -> str | None:
    """A password, passphrase or a yes to a host key, asked on the terminal."""
    try:
        if kind == "hostkey":
            return "yes" if await asyncio.to_thread(click.confirm, question, default=False, err=True) else None
        return str(await asyncio.to_thread(click.prompt, question, hide_input=True, err=True))
    except click.Abort:
        return None
