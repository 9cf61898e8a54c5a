"""`tokpit man`: the manual page, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tokpit import __version__

ENVIRONMENT = (
    ("TOKPIT_CONFIG_DIR", "Folder of config.toml, hosts.toml and themes (default: ~/.config/tokpit)."),
    ("TOKPIT_STATE_DIR", "Folder of history, recordings and exports (default: ~/.local/state/tokpit)."),
    ("TOKPIT_CACHE_DIR", "Folder of what can be made again (default: ~/.cache/tokpit)."),
    ("NO_COLOR", "Any value: the console without colour."),
)
STATUS = (
    ("0", "Done, or all is well."),
    ("1", "Refused, not confirmed, or a check that failed."),
    ("2", "The request itself is off: option, configuration, theme."),
    ("3", "The host cannot be used."),
    ("4", "No such server, or more than one fits."),
    ("5", "The server was not started, or failed."),
    ("6", "The server was not stopped."),
    ("7", "A sweep measured nothing."),
    ("8", "History, recording or export cannot be read or written."),
    ("130", "Ended by Ctrl-C."),
)


@click.command()
@click.pass_context
def man(ctx: click.Context) -> None:
    """Print the manual page (roff), made from the commands: `tokpit man | man -l -`."""
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    click.echo("".join(page(root.command)), nl=False)


def page(group: click.Group) -> Iterator[str]:
    """The page, line by line."""
    yield f'.TH TOKPIT 1 "" "tokpit {__version__}" "User commands"\n'
    yield ".SH NAME\ntokpit \\- a terminal console for LLM inference servers\n"
    yield ".SH SYNOPSIS\n.B tokpit\n[\\fIOPTIONS\\fR] [\\fIHOST\\fR... | \\fICOMMAND\\fR [\\fIARGS\\fR]...]\n"
    context = click.Context(group, info_name="tokpit")
    yield f".SH DESCRIPTION\n{_roff(group.help or '')}"
    yield from _options(group, context, ".SH OPTIONS\n")
    yield ".SH COMMANDS\n"
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield from _command(command, click.Context(command, info_name=name, parent=context), name)
    yield ".SH ENVIRONMENT\n"
    for word, text in ENVIRONMENT:
        yield f".TP\n.B {word}\n{_escape(text)}\n"
    yield ".SH EXIT STATUS\n"
    for word, text in STATUS:
        yield f".TP\n.B {word}\n{_escape(text)}\n"


def _command(command: click.Command, context: click.Context, name: str) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "tokpit {_escape(name)} {_escape(usage)}"\n{_roff(command.help or "")}'
    yield from _options(command, context, "")
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            inner = command.get_command(context, child)
            if inner is not None and not inner.hidden:
                yield from _command(inner, click.Context(inner, info_name=child, parent=context), f"{name} {child}")


def _options(command: click.Command, context: click.Context, head: str) -> Iterator[str]:
    records = [
        found
        for option in command.get_params(context)
        if isinstance(option, click.Option) and (found := option.get_help_record(context)) is not None
    ]
    if records and head:
        yield head
    for flags, text in records:
        yield f".TP\n.B {_escape(flags)}\n{_escape(text)}\n"


def _roff(text: str) -> str:
    """Help text as paragraphs; a line of \\b keeps the lines below it as they are."""
    parts = []
    for block in text.replace("\f", "").strip().split("\n\n"):
        lines = [line.strip() for line in block.split("\n")]
        if lines[0] == "\b":
            parts.append(".nf\n" + "".join(_escape(line) + "\n" for line in lines[1:]) + ".fi\n")
        else:
            parts.append(_escape(" ".join(lines)) + "\n")
    return ".PP\n".join(parts)


def _escape(text: str) -> str:
    clean = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + clean if clean.startswith((".", "'")) else clean
