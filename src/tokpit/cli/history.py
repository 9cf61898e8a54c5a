"""`tokpit history`: servers that ran on a host before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.domain.text import mask_secrets, sanitize

if TYPE_CHECKING:
    from tokpit.ops.host.deployments import Compared, Past
    from tokpit.ops.host.remembered import Deployment
    from tokpit.ops.session import Session


@click.command()
@click.argument("host")
@click.option("--diff", is_flag=True, help="Compare each with what runs now, likeliest cause of a change first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_obj
def history(options: Options, host: str, diff: bool, as_json: bool) -> None:
    """List the servers that ran on HOST before, in time.

    Looked for in systemd units and their journal, shell histories, tmux, containers, compose files, launch scripts,
    server logs, and tokpit's own launches. Read-only; secrets are masked. The six digits before each name it:
    `tokpit launch HOST --earlier DIGITS` starts it again.
    """
    from tokpit.ops.host.deployments import look_back

    async def work(session: Session) -> Past:
        return await look_back(session, host, compare=diff)

    past = options.run(work)
    to_json(as_document(past)) if as_json else show(past)


def as_document(past: Past) -> dict[str, Any]:
    """The past as JSON."""
    return {
        "host": past.host,
        "deployments": [_row(one) for one in past.deployments],
        "remarks": past.remarks,
        "running": [{"server": s.label, "engine": s.engine, "version": s.version} for s in past.running],
        "installed": [
            {"prefix": place.prefix, "kind": place.kind, "engines": place.engines} for place in past.found.environments
        ],
        "compared": [
            {
                "server": pair.server.label,
                "source": pair.deployment.source,
                "where": pair.deployment.where,
                "same_model": pair.akin,
                "changes": [change.text for change in pair.changes],
            }
            for pair in past.compared
        ],
        "cut": past.cut,
    }


def _row(one: Deployment) -> dict[str, Any]:
    from tokpit.ops.host.deployments import key_of
    from tokpit.store.masking import masked

    return {
        "key": key_of(one),
        "t": one.t,
        "before": one.before,
        "source": one.source,
        "where": one.where,
        "engine": one.engine,
        "state": one.state,
        "version": one.version,
        "version_now": one.version_now,
        "changed_since": one.changed_since,
        "settings": masked(one.settings.given()),
        "raw": masked(list(one.settings.raw)),
        "env": masked(one.env),
        "command": " ".join(masked(list(one.argv))),
        "image": one.image,
        "notes": [mask_secrets(note) for note in one.notes],
    }


def show(past: Past) -> None:
    """Print the past, oldest first."""
    from tokpit.ops.host.deployments import explanations

    for one in past.deployments:
        _show_one(one, past)
    for remark in past.remarks:
        click.echo(sanitize(f"- {remark}"))
    for place in past.found.environments:
        for engine, version in place.engines.items():
            click.echo(sanitize(f"- installed now: {engine} {version} in {place.prefix}"))
    if not past.deployments:
        click.echo(f"no earlier server is remembered on {past.host}", err=True)
    if past.cut:
        click.echo("the search was cut short: large or slow file systems", err=True)
    for server in past.running:
        pairs = [pair for pair in past.compared if pair.server.id == server.id]
        if pairs:
            click.echo(f"\nagainst {server.label} ({server.engine} {server.version or '?'}), which runs now:")
            for pair in pairs:
                if pair.akin:
                    _show_pair(pair)
            if others := sum(not pair.akin for pair in pairs):
                click.echo(f"  {others} of other models are left out here; --json has them")
            for number, text in enumerate(explanations(pairs)[:8], 1):
                if number == 1:
                    click.echo("  what could explain another speed, strongest first:")
                click.echo(sanitize(f"    {number}. {text}"))


def _show_one(one: Deployment, past: Past) -> None:
    when = _date(one.t) if one.t is not None else f"before {_date(one.before)}" if one.before else "time unknown"
    versions = f" {one.version}" if one.version else ""
    if one.version_now and one.version_now != one.version:
        versions += f" (its environment holds {one.version_now} now" + (
            ", installed since)" if one.changed_since else ")"
        )
    from tokpit.ops.host.deployments import key_of, same
    from tokpit.store.masking import masked

    now = "".join(f"  RUNS NOW as {server.label}" for server in past.running if same(one, server))
    click.echo(sanitize(f"{key_of(one)}  {when}  {one.source}  {one.where}  {one.engine}{versions}{now}"))

    given = {**one.settings.given(), **({"image": one.image} if one.image else {})}
    line = ", ".join(f"{name}={value}" for name, value in masked(given).items())
    raw = " ".join(masked(list(one.settings.raw)))
    for text in (line, raw, one.state, *one.notes):
        if text:
            click.echo(sanitize(f"    {mask_secrets(text)}"))


def _show_pair(pair: Compared) -> None:
    one = pair.deployment
    click.echo(sanitize(f"  {one.source} {one.where}" + (f", {_date(one.t)}" if one.t else "") + ":"))
    if not pair.changes:
        click.echo("    no difference")
    for change in pair.changes:
        click.echo(sanitize(f"    {change.text}"))


def _date(t: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(t)) if t is not None else "-"
