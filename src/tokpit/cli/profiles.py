"""`tokpit profiles`: what a server is launched with, kept under a name."""

from __future__ import annotations

import click

from tokpit.cli.context import Options
from tokpit.cli.output import table, to_json
from tokpit.domain.text import sanitize
from tokpit.errors import UsageError


@click.command()
@click.argument("name", required=False)
@click.option("--from", "target", metavar="TARGET", help="Save the running server TARGET as the profile NAME.")
@click.option("--replace", is_flag=True, help="With --from: write over a profile of that name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def profiles(options: Options, name: str | None, target: str | None, replace: bool, as_json: bool) -> None:
    """List launch profiles, show the one called NAME, or save a running server as NAME.

    Each is a TOML file in the folder `profiles` of the user's configuration, with settings under canonical names;
    `tokpit launch HOST --profile NAME` starts it on any host. Keys and tokens are left out when one is saved.
    """
    from tokpit.config.profiles import folder, load_profile, load_profiles, profile_path, profile_text
    from tokpit.ops.lifecycle.profiles import save_from, settings_line

    if target is not None:
        if name is None:
            raise UsageError("a profile needs a name", hint=f"tokpit profiles NAME --from {target}")
        saved = options.run(lambda session: save_from(session, target, name, replace=replace))
        if as_json:
            to_json({"path": str(saved.path), "profile": saved.profile, "left_out": saved.left_out})
            return
        click.echo(f"saved {saved.path}")
        if saved.left_out:
            click.echo(f"left out, because the file is plain text: {', '.join(saved.left_out)}", err=True)
        click.echo(f"launch it with: tokpit launch HOST --profile {name}", err=True)
    elif name is not None:
        profile = load_profile(name)
        to_json(profile) if as_json else click.echo(f"# {profile_path(name)}\n{sanitize_lines(profile_text(profile))}")
    else:
        found = load_profiles()
        if as_json:
            to_json(found)
        elif found.profiles:
            rows = [(n, p.engine, p.note or None, settings_line(p.settings)) for n, p in found.profiles.items()]
            table(("PROFILE", "ENGINE", "NOTE", "SETTINGS"), rows)
        else:
            click.echo(f"no profile lies in {folder()}; save one with: tokpit profiles NAME --from HOST:PORT", err=True)
        for problem in found.problems:
            click.echo(f"left out: {problem}", err=True)


def sanitize_lines(text: str) -> str:
    """Lines without anything that a terminal would take for more than text."""
    return "\n".join(sanitize(line) for line in text.rstrip("\n").split("\n"))
