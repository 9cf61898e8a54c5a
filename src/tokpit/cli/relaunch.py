"""`tokpit relaunch`."""

from __future__ import annotations

from typing import Any

import click

from tokpit.cli.context import Options
from tokpit.cli.launch import parse_env, show_launched
from tokpit.cli.progress import show_operations
from tokpit.cli.settings_options import given_settings, setting_options


@click.command()
@click.argument("target")
@setting_options
@click.option(
    "--timeout", "timeout_s", type=float, default=1800.0, show_default=True, help="Seconds to wait for ready."
)
@click.option(
    "--rollback/--no-rollback",
    default=None,
    help="Start the earlier server again if the new one fails (default: ask then; with --yes: no).",
)
@click.option("-e", "--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option("--force", is_flag=True, help="Start although the checks refuse.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, and clear away what a failed start leaves.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def relaunch(options: Options, /, **values: Any) -> None:
    """Stop the server TARGET and start it again with changed settings; what is not named stays as it is.

    A server over several hosts is relaunched on all of them, whichever rank is named. A batch job (HOST:PORT, or
    HOST/JOB) is cancelled and submitted again with the change, where its script is one that tokpit wrote.
    """

    async def work(session: Any) -> None:
        async with show_operations(session):
            done = await session.execute(
                "server.relaunch",
                target=values["target"],
                changes=given_settings(values, running=True),
                env=parse_env(values["env"]),
                rollback=values["rollback"],
                force=values["force"],
                timeout_s=values["timeout_s"],
            )
        show_launched(session, done, as_json=values["as_json"])

    options.run(work, yes=values["yes"])
