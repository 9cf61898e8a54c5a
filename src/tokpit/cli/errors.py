"""Errors and interrupts at the shell: one sentence on stderr, an exit code that means something, no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from tokpit.errors import TokpitError

INTERRUPTED = 130


def guarded(main: Callable[[], Any]) -> int:
    """Run `main`; the exit code: 0, what it returned if an int, or the error's."""
    try:
        result = main()
    except TokpitError as error:
        report(error)
        return error.exit_code
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("tokpit: stopped", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def report(error: TokpitError) -> None:
    """The sentence, and what to do."""
    click.echo(f"tokpit: {error.message}", err=True)
    if error.hint:
        click.echo(f"        {error.hint}", err=True)
