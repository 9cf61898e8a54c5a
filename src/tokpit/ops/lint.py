"""Lint: what the flags' schema and the rules say of a command line, with or without a host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import LaunchSpec
from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.registry import engine as engine_of
from tokpit.engines.registry import recognise
from tokpit.errors import UsageError
from tokpit.ops import environment
from tokpit.ops.schema import installed_schema

if TYPE_CHECKING:
    from tokpit.ops.session import Session


async def lint_command(
    session: Session, command: Sequence[str], *, engine: str | None, version: str | None, host: str | None
) -> list[RuleAnswer]:
    """Issues of a server command line, errors first. Raises UsageError where no engine can be told from it."""
    argv = tuple(shlex.split(command[0])) if len(command) == 1 else tuple(command)
    env: dict[str, str] = {}
    while argv and "=" in argv[0] and argv[0].split("=", 1)[0].isidentifier():
        name, _, value = argv[0].partition("=")
        env[name] = value
        argv = argv[1:]
    found = recognise(argv)
    if found is None and engine is None:
        raise UsageError("cannot tell the engine from this command line", hint="name it with --engine")
    knowledge = engine_of(found.engine if found is not None else str(engine))
    program = found.program if found is not None else ()
    flags = argv[len(program) :]
    settings = knowledge.from_flags(flags, version)
    facts, model, schema = HostFacts(), ModelFacts(), None
    if host is not None:
        machine = await session.connected(host)
        spec = LaunchSpec(
            host=host, engine=knowledge.name, program=program, settings=settings, version=version, env=env
        )
        spec = await environment.complete(machine, knowledge, spec)
        version = spec.version
        schema = await installed_schema(machine, knowledge, spec.program, version)
        facts = await environment.host_facts(machine, spec)
        model = await environment.model_facts(machine, spec)
    answers = [
        RuleAnswer(
            code=f"FLAG_{issue.code.upper().replace('-', '_')}", severity=issue.severity, sentence=issue.sentence
        )
        for issue in knowledge.check_flags(flags, version, schema)
    ]
    answers += knowledge.check_rules(settings, version, model, facts, env)
    return sorted(answers, key=lambda answer: ("error", "warning", "info").index(answer.severity))
