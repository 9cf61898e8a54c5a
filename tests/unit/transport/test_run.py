from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from process_tools import until_gone
from tokpit.errors import LinkLost, RemoteFailed
from tokpit.transport.local import LocalHost
from tokpit.transport.ssh import SshHost

AnyHost = SshHost | LocalHost


async def test_output_error_and_status_come_back_apart(any_host: AnyHost) -> None:
    done = await any_host.run("echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.status) == (b"out\n", b"err\n", 7)


async def test_bytes_that_are_not_utf8_come_back_as_they_are(any_host: AnyHost) -> None:
    done = await any_host.run(r"printf 'a\377b\n'; echo 'größe' ")
    assert done.stdout == b"a\xffb\n" + "größe\n".encode()
    assert (await any_host.run("echo still here")).out == "still here\n"


async def test_a_line_of_three_megabytes_is_not_cut(any_host: AnyHost) -> None:
    done = await any_host.run("head -c 3000000 /dev/zero | tr '\\0' x; echo")
    assert len(done.stdout) == 3_000_001
    assert done.status == 0


async def test_script_reads_the_bytes_given_as_stdin(any_host: AnyHost) -> None:
    data = bytes(range(256)) * 8192
    done = await any_host.run("wc -c; exit 4", stdin=data)
    assert (done.out.strip(), done.status) == (str(len(data)), 4)


async def test_without_stdin_a_reading_script_meets_its_end(any_host: AnyHost) -> None:
    assert (await any_host.run("cat; echo over")).out == "over\n"


async def test_quotes_backslashes_and_percent_signs_survive_the_way(any_host: AnyHost) -> None:
    script = "printf '%s\\n' 'it'\"'\"'s' \"a\\\\b\" '%s %b' '\\n' '!x' '$HOME'"
    assert (await any_host.run(script)).out.splitlines() == ["it's", "a\\b", "%s %b", "\\n", "!x", "$HOME"]


async def test_syntax_error_in_a_script_is_a_status_not_a_failure_of_the_link(any_host: AnyHost) -> None:
    done = await any_host.run("if then")
    assert done.status != 0
    assert "yntax" in done.err


async def test_death_by_signal_is_a_negative_status(any_host: AnyHost) -> None:
    assert (await any_host.run("kill -KILL $$")).status == -9


async def test_check_raises_with_the_last_line_of_stderr(any_host: AnyHost) -> None:
    with pytest.raises(RemoteFailed, match="disk on fire") as caught:
        await any_host.run("echo starting; echo 'disk on fire' >&2; exit 9", check=True)
    assert caught.value.status == 9


async def test_timeout_ends_the_whole_remote_process_group(any_host: AnyHost, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(RemoteFailed, match="did not end within"):
        await any_host.run(f"sh -c 'echo $$ > {pid_file}; trap \"\" TERM; while :; do sleep 1; done'", timeout_s=1)
    await until_gone(int(pid_file.read_text()))


async def test_timeout_of_a_script_that_was_given_stdin_ends_it_too(any_host: AnyHost, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(RemoteFailed, match="did not end within"):
        await any_host.run(f"cat > /dev/null; echo $$ > {pid_file}; sleep 300", stdin=b"x", timeout_s=1)
    await until_gone(int(pid_file.read_text()))


async def test_cancelled_run_leaves_nothing_behind(any_host: AnyHost, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    task = asyncio.ensure_future(any_host.run(f"echo $$ > {pid_file}; sleep 300"))
    while not (pid_file.exists() and pid_file.read_text().strip()):
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_gone(int(pid_file.read_text()))
    assert (await any_host.run("echo fine")).out == "fine\n"


async def test_stream_gives_output_while_the_command_runs_and_leaving_ends_it(
    any_host: AnyHost, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    got = b""
    async with any_host.stream(f"echo $$ > {pid_file}; while :; do echo tick; sleep 0.1; done") as chunks:
        async for chunk in chunks:
            got += chunk
            if got.count(b"tick\n") >= 3:
                break
    await until_gone(int(pid_file.read_text()))


async def test_stream_ends_when_the_command_ends(any_host: AnyHost) -> None:
    async with any_host.stream("seq 3; exit 5") as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"1\n2\n3\n"


async def test_stream_full_of_stderr_does_not_stall(any_host: AnyHost) -> None:
    async with any_host.stream("head -c 5000000 /dev/zero >&2; echo done") as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"done\n"


async def test_twenty_commands_at_once_all_answer(any_host: AnyHost) -> None:
    answers = await asyncio.gather(*(any_host.run(f"sleep 0.05; echo {i}") for i in range(20)))
    assert [done.out for done in answers] == [f"{i}\n" for i in range(20)]


async def test_streams_do_not_starve_commands(host: SshHost) -> None:
    async def hold(started: asyncio.Event) -> None:
        async with host.stream("echo on; sleep 300") as chunks:
            async for _ in chunks:
                started.set()

    events = [asyncio.Event() for _ in range(5)]
    tasks = [asyncio.ensure_future(hold(event)) for event in events]
    await asyncio.gather(*(event.wait() for event in events))
    assert (await host.run("echo free")).out == "free\n"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_closed_host_refuses_work(any_host: AnyHost) -> None:
    await any_host.close()
    with pytest.raises(LinkLost):
        await any_host.run("true")
