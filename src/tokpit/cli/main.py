"""The command line: `tokpit` alone or with a host opens the cockpit; everything the screens do is a command too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from tokpit import __version__
from tokpit.cli.context import Options

_COMMANDS: Mapping[str, tuple[str, str]] = {
    # name: (module with a click command of the same name, one line for --help)
    "demo": ("demo", "Open the cockpit on a simulated GPU host."),
    "doctor": ("doctor", "Examine a host for launches: how each thing is and how to mend it."),
    "history": ("history", "List the servers that ran on a host before, and what changed since."),
    "hosts": ("hosts", "List the hosts of the inventory."),
    "ps": ("ps", "Find running inference servers."),
    "watch": ("watch", "Print a server's figures as they come."),
    "logs": ("logs", "Follow a server's log."),
    "profiles": ("profiles", "List launch profiles, show one, or save one from a running server."),
    "launch": ("launch", "Start a server, detached, and wait until it is ready."),
    "stop": ("stop", "End exactly one server."),
    "relaunch": ("relaunch", "Stop a server and start it with changed settings."),
    "adopt": ("adopt", "Record a server that somebody else started."),
    "check": ("check", "Look whether a server is sane: answers, flags, speed, log."),
    "sweep": ("sweep", "Measure throughput and latency at several concurrency levels."),
    "tune": ("tune", "Find the best settings of a server; it is put back at the end."),
    "ab": ("ab", "Compare a server with the same under other settings, in alternating blocks."),
    "plan": ("plan", "Plan a job of many requests from measured sweeps: hours, hosts, cost."),
    "fleet": ("fleet", "Check, sweep or stop several servers, one after another."),
    "runs": ("runs", "List stored runs, or show one."),
    "alarms": ("alarms", "Watch hosts and print alarms as they begin and end."),
    "record": ("record", "Record hosts into a file; save or cut what was recorded."),
    "replay": ("replay", "Open the console on a recording."),
    "import": ("import_", "Store results of other benchmark tools as runs."),
    "report": ("report", "Export a run or an incident: Markdown, HTML, CSV, JSON."),
    "compare": ("compare", "Compare runs: a verdict with its noise band, and what changed."),
    "baseline": ("baseline", "List the runs that later ones are compared with, and their noise."),
    "audit": ("audit", "List what tokpit did that changed a host."),
    "diagnose": ("diagnose", "Say what logs, sweeps and facts mean, with the arithmetic."),
    "flags": ("flags", "List an engine's flags, per version."),
    "lint": ("lint", "Check a server command line without starting it."),
    "parse-log": ("parse_log", "Parse a server's log file into records."),
    "completion": ("completion", "Print the completion script of a shell."),
    "man": ("man", "Print the manual page."),
}


class LazyGroup(click.Group):
    """Commands are imported when they are used; a word that is no command is a host to open the cockpit on."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of that command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        found = getattr(import_module(f"tokpit.cli.{module}"), module)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands from the table, without importing them; hosts of the inventory; options."""
        words = [
            CompletionItem(name, help=text) for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*words, *_hosts(incomplete), *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A first word that is no command is a host name for the cockpit."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            return "cockpit", import_module("tokpit.cli.cockpit").cockpit, args
        return super().resolve_command(ctx, args)


def _hosts(incomplete: str) -> list[CompletionItem]:
    """Hosts of the inventory; none where it cannot be read, because a shell is no place to say so."""
    from tokpit.config.inventory import load_inventory
    from tokpit.errors import TokpitError

    try:
        hosts = load_inventory().hosts
    except TokpitError:
        return []
    return [CompletionItem(name, help="host") for name in hosts if name.startswith(incomplete)]


def _themes(incomplete: str) -> list[CompletionItem]:
    from tokpit.config.themes import load_themes

    return [CompletionItem(name) for name in load_themes().themes if name.startswith(incomplete)]


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    options_metavar="[OPTIONS]",
    subcommand_metavar="[HOST... | COMMAND [ARGS]...]",
)
@click.version_option(__version__, "-V", "--version", message="tokpit %(version)s")
@click.option("--read-only", is_flag=True, help="Refuse every command that changes a host.")
@click.option("--inventory", type=click.Path(dir_okay=False), help="Inventory file (TOML) instead of the user's own.")
@click.option("--history", type=click.Path(dir_okay=False), help="History database instead of the user's own.")
@click.option("--theme", help="Theme of the cockpit, by name.", shell_complete=lambda _, __, begun: _themes(begun))
@click.pass_context
def tokpit(ctx: click.Context, read_only: bool, inventory: str | None, history: str | None, theme: str | None) -> None:
    """Find, watch, launch, sweep and understand LLM inference servers over SSH.

    Without a command, opens the cockpit on the hosts named, or on those of the inventory.
    """
    options: Options = ctx.obj
    options.read_only, options.inventory, options.history, options.theme = read_only, inventory, history, theme
    if ctx.invoked_subcommand is None:
        ctx.invoke(import_module("tokpit.cli.cockpit").cockpit, hosts=())


def run(open_app: Callable[..., Any] | None = None, argv: list[str] | None = None) -> None:
    """Run the command line and exit; `open_app` opens the cockpit, so that cli needs no ui."""
    from tokpit.cli.errors import guarded

    sys.exit(guarded(lambda: tokpit.main(args=argv, prog_name="tokpit", standalone_mode=False, obj=Options(open_app))))
