"""Servers of others are recorded after consent; what was done is written down here and on the host."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from lifecycle_tools import serve
from process_tools import alive
from tokpit.cli.context import ask_confirm
from tokpit.errors import UsageError
from tokpit.ops.gate import ConfirmRequest, Refused, Risk
from tokpit.ops.session import Session
from tokpit.transport.detached import read_states


async def test_an_adopted_server_is_recorded_known_and_stopped(
    session: Session, home: Path, engine_dir: Path, unused_tcp_port: int
) -> None:
    process = await serve(engine_dir, unused_tcp_port, "--api-key", "sk-topsecret")
    asked: list[ConfirmRequest] = []

    async def confirm(request: ConfirmRequest) -> bool:
        asked.append(request)
        return len(asked) > 1

    session.assume_yes, session.confirm = False, confirm
    target = f"local:{unused_tcp_port}"
    with pytest.raises(Refused):
        await session.execute("server.adopt", target=target)
    assert await read_states(session.host("local")) == []
    done = await session.execute("server.adopt", target=target)
    assert "sk-topsecret" not in " ".join(asked[0].lines)
    (state,) = await read_states(session.host("local"))
    assert (state.pid, state.method, state.port) == (process.pid, "adopted", unused_tcp_port)
    assert state == done.state
    assert state.boot_id
    assert "sk-topsecret" not in " ".join(state.argv)
    (server,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    assert server.launched_by_tokpit
    with pytest.raises(UsageError, match="recorded already"):
        await session.execute("server.adopt", target=target)
    session.assume_yes = True
    await session.execute("server.stop", target=target)
    process.wait(10)
    assert not alive(process.pid)
    assert await read_states(session.host("local")) == []

    log = home / ".local/state/tokpit/audit.log"
    first, second = log.read_text().splitlines()
    assert re.search(r"server.adopt done after \d+\.\d s: adopt vllm .* \| write ~/.local/state", first)
    assert re.search(
        rf"server.stop done after \d+\.\d s: stop vllm .* \| kill -TERM -{process.pid}; kill -KILL", second
    )
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    entries = await (await session.history()).audit()
    assert [(entry.command, entry.outcome) for entry in entries] == [("server.stop", "done"), ("server.adopt", "done")]


async def test_a_host_that_cannot_keep_an_audit_does_not_fail_the_command(
    session: Session, home: Path, engine_dir: Path, unused_tcp_port: int
) -> None:
    process = await serve(engine_dir, unused_tcp_port)
    (home / ".local/state/tokpit").mkdir(parents=True)
    (home / ".local/state/tokpit/audit.log").mkdir()
    done = await session.execute("server.stop", target=f"local:{unused_tcp_port}")
    assert process.wait(10) == 0
    assert done.signal == "TERM"


def test_the_audit_lists_newest_first_and_the_hosts_own(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokpit.cli.main import run

    log = home / ".local/state/tokpit/audit.log"
    log.parent.mkdir(parents=True)
    log.write_text("one \x1b[31mred\n" + "two\n")
    with pytest.raises(SystemExit) as ended:
        run(argv=["audit", "--host", "local", "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["lines"] == ["one red", "two"]
    with pytest.raises(SystemExit):
        run(argv=["audit", "-n", "3"])
    assert "nothing was changed" in capsys.readouterr().err


async def test_a_question_on_the_terminal_shows_no_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.confirm", lambda *words, **options: True)
    line = "serve --api-key sk-not-shown"
    asked = ConfirmRequest(title=line, lines=(line,), warnings=(line,), risk=Risk.CHANGE)
    assert await ask_confirm(asked)
    shown = capsys.readouterr().err
    assert shown.count("serve --api-key ***") == 3
    assert "sk-" not in shown
