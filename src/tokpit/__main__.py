"""The `tokpit` console script: joins the command line and the cockpit, which do not know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokpit.ops.session import Session


async def open_app(session: Session, *, theme: str | None = None) -> None:
    """Open the cockpit on a session and return when it is closed."""
    from tokpit.ui.run import run_app

    await run_app(session, theme=theme)


def main() -> None:
    """Run the command line; see `tokpit --help`."""
    from tokpit.cli.main import run

    run(open_app)


if __name__ == "__main__":
    main()
