"""Lint: what the flags' schema and the rules say of a command line, with or without a host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.base import Engine
from tokpit.engines.flagkit.report import engine_by_flags
from tokpit.engines.registry import engine as engine_of
from tokpit.engines.registry import recognise
from tokpit.errors import UsageError
from tokpit.ops.facts import Stated
from tokpit.ops.host import environment
from tokpit.ops.host.schema import installed_schema

if TYPE_CHECKING:
    from tokpit.ops.session import Session


async def lint_command(
    session: Session,
    command: Sequence[str],
    *,
    engine: str | None,
    version: str | None,
    host: str | None,
    facts: Stated | None = None,
) -> list[RuleAnswer]:
    """Issues of a server command line, errors first. Raises UsageError where no engine can be told from it.

    With `host` its version, flag schema, memory, GPUs, ports and model files count, without it what `facts` state.
    """
    env, argv = split_environment(command)
    found = recognise(argv)
    name = found.engine if found is not None else engine or engine_by_flags(argv)
    if name is None:
        raise UsageError("cannot tell the engine from this command line", hint="name it with --engine")
    knowledge = engine_of(name)
    program = found.program if found is not None else ()
    flags = argv[len(program) :]
    settings = knowledge.from_flags(flags, version)
    facts = facts or Stated()
    of_host, model, schema = facts.host, facts.model, None
    if host is not None:
        machine = await session.connected(host)
        spec = LaunchSpec(
            host=host, engine=knowledge.name, program=program, settings=settings, version=version, env=env
        )
        spec = await environment.complete(machine, knowledge, spec)
        version = spec.version
        schema = await installed_schema(machine, knowledge, spec.program, version)
        of_host = await environment.host_facts(machine, spec)
        model = await environment.model_facts(machine, spec)
    answers = [
        RuleAnswer(
            code=f"FLAG_{issue.code.upper().replace('-', '_')}", severity=issue.severity, sentence=issue.sentence
        )
        for issue in knowledge.check_flags(flags, version, schema)
    ]
    answers += knowledge.check_rules(facts.settings(settings), version, model, of_host, env)
    return sorted(answers, key=lambda answer: ("error", "warning", "info").index(answer.severity))


def settings_of(knowledge: Engine, command: str) -> Settings:
    """The settings in a whole command line, or in flags alone. Raises UsageError for a line that cannot be split."""
    _, argv = split_environment((command,))
    found = knowledge.recognise(argv)
    return found.settings if found is not None else knowledge.from_flags(argv, None)


def split_environment(command: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The `NAME=VALUE` words in front (and `env`), and the rest. One word is a whole line, split as a shell would.

    Raises UsageError for a line that no shell could split.
    """
    try:
        argv = tuple(shlex.split(command[0].replace("\\\n", " "))) if len(command) == 1 else tuple(command)
    except ValueError as error:
        raise UsageError(f"the command line cannot be split: {error}") from error
    env: dict[str, str] = {}
    while argv and (argv[0] in _CARRIERS or ("=" in argv[0] and argv[0].split("=", 1)[0].isidentifier())):
        name, equals, value = argv[0].partition("=")
        if equals:
            env[name] = value
        argv = argv[1:]
    return env, argv


_CARRIERS = frozenset({"env", "nohup", "setsid", "exec"})
"""Words that only run what follows them."""
