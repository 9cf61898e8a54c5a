from __future__ import annotations

import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokpit.collect.find import Finder, find_servers, log_path, orphans_of, servers_of
from tokpit.probes.processes import Listener, Process, ProcessTable
from tokpit.transport.local import LocalHost

SGLANG = ("/opt/sgl/bin/python3", "-m", "sglang.launch_server", "--model-path", "/m/seven", "--tp", "2")
VLLM = ("/opt/v/bin/python", "/opt/v/bin/vllm", "serve", "org/eight", "--served-model-name", "eight")


def process(pid: int, ppid: int = 1, argv: tuple[str, ...] = (), **fields: object) -> Process:
    usual = {"pgid": pid, "sid": pid, "start_ticks": pid * 10, "rss_bytes": 100, "state": "S", "comm": "python3"}
    return Process(pid=pid, ppid=ppid, argv=argv, **(usual | fields))  # type: ignore[arg-type]  # mixed fields


def table(*processes: Process, listeners: tuple[Listener, ...] = ()) -> ProcessTable:
    return ProcessTable(processes=processes, listeners=listeners, boot_time=1000.0, clock_ticks=100)


def test_a_server_is_told_with_all_that_its_process_says() -> None:
    found = table(
        process(1, 0, comm="systemd"),
        process(50, 1, SGLANG, user="eve", cwd="/w", stdout="/log/s.log", stdout_kind="file", container="abc", pgid=49),
        process(51, 50, ("sglang::scheduler_TP0",)),
        process(52, 51),
    )
    (server,) = servers_of(found, "gpu1")
    assert (server.id, server.engine, server.pgid, server.user, server.cwd) == (
        "gpu1/50@500",
        "sglang",
        49,
        "eve",
        "/w",
    )
    assert (server.model, server.settings.tp, server.port, server.listen) == ("/m/seven", 2, 30000, "127.0.0.1")
    assert (server.python, server.log_path, server.container) == ("/opt/sgl/bin/python3", "/log/s.log", "abc")
    assert (server.started_at, server.children, server.rss_bytes) == (1005.0, (51, 52), 300)
    assert server.url == "http://127.0.0.1:30000"


def test_two_engines_on_a_host_are_two_servers() -> None:
    found = table(process(50, 1, SGLANG), process(60, 1, (*VLLM, "--port", "8123", "--host", "0.0.0.0")))
    assert [(s.engine, s.port, s.served_name) for s in servers_of(found, "h")] == [
        ("sglang", 30000, None),
        ("vllm", 8123, "eight"),
    ]


def test_a_fork_of_the_main_process_is_no_second_server() -> None:
    found = table(process(50, 1, SGLANG), process(51, 50, SGLANG), process(52, 51, ("python3", "-c", "spawn")))
    (server,) = servers_of(found, "h")
    assert (server.pid, server.children) == (50, (51, 52))


def test_a_zombie_and_an_editor_of_a_server_file_are_no_servers() -> None:
    found = table(process(50, 1, SGLANG, state="Z"), process(51, 1, ("vim", "sglang/launch_server.py")))
    assert servers_of(found, "h") == ()


@pytest.mark.parametrize(
    ("flags", "listeners", "port"),
    [
        (("--port", "31000"), (Listener("0.0.0.0", 9, 1, (50,)),), 31000),
        ((), (), 30000),
        ((), (Listener("0.0.0.0", 4444, 1, (50,)),), 4444),
        ((), (Listener("0.0.0.0", 4444, 1, (50,)), Listener("0.0.0.0", 30000, 2, (50,))), 30000),
        ((), (Listener("127.0.0.1", 5555, 1, (51,)),), 5555),
        ((), (Listener("0.0.0.0", 4444, 1, ()),), 30000),
    ],
    ids=["flag", "default", "only one open", "default among several", "a child's", "owner unknown"],
)
def test_the_port_comes_from_the_flag_then_from_what_is_open(
    flags: tuple[str, ...], listeners: tuple[Listener, ...], port: int
) -> None:
    found = table(process(50, 1, (*SGLANG, *flags)), process(51, 50), listeners=listeners)
    assert [server.port for server in servers_of(found, "h")] == [port]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:30000"),
        ("::", "http://127.0.0.1:30000"),
        ("10.1.2.3", "http://10.1.2.3:30000"),
        ("fd00::2", "http://[fd00::2]:30000"),
    ],
)
def test_the_address_is_one_that_can_be_reached(given: str, url: str) -> None:
    (server,) = servers_of(table(process(50, 1, (*SGLANG, "--host", given))), "h")
    assert server.url == url


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"stdout": "/dev/null", "stderr": "/l/e.log", "stderr_kind": "file"}, "/l/e.log"),
        ({"stdout": "/l/o.log (deleted)", "stdout_kind": "deleted", "stderr": "/dev/pts/3"}, None),
        ({"stdout": "/app/o.log", "stdout_kind": "foreign"}, "/proc/50/root/app/o.log"),
        ({"stdout": "pipe:[77]", "stderr": "pipe:[77]"}, "/w/out/t.log"),
        ({"stdout": "pipe:[78]", "stderr": "socket:[9]"}, None),
        ({}, None),
    ],
    ids=["stderr", "deleted", "other mounts", "tee", "pipe to nobody", "unreadable"],
)
def test_the_log_is_where_the_output_really_goes(fields: dict[str, str], path: str | None) -> None:
    tee = process(9, 1, ("tee", "-a", "out/t.log"), comm="tee", stdin="pipe:[77]", cwd="/w")
    assert log_path(process(50, 1, SGLANG, **fields), (tee,)) == path


def test_workers_without_their_server_are_orphans_with_their_own_workers() -> None:
    found = table(
        process(1, 0, comm="systemd"),
        process(50, 1, VLLM),
        process(51, 50, ("VLLM::EngineCore",)),
        process(70, 1, ("VLLM::EngineCore",), pgid=69, user="eve"),
        process(71, 70, ("VLLM::Worker_TP1",)),
        process(80, 2000, ("sglang::scheduler_TP0",)),
        process(90, 91, ("VLLM::EngineCore",)),
        process(91, 1, comm="python3"),
    )
    orphans = orphans_of(found)
    assert [(o.pid, o.engine, o.pgid, o.title) for o in orphans] == [
        (70, "vllm", 69, "VLLM::EngineCore"),
        (71, "vllm", 71, "VLLM::Worker_TP1"),
        (80, "sglang", 80, "sglang::scheduler_TP0"),
    ]
    assert (orphans[0].started_at, orphans[0].user) == (1007.0, "eve")


def test_workers_of_a_server_that_is_pid_1_of_its_container_are_no_orphans() -> None:
    assert orphans_of(table(process(1, 0, VLLM), process(20, 1, ("VLLM::EngineCore",)))) == ()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a package that is started like SGLang and opens the port it is given."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "sglang").mkdir()
    (packages / "sglang" / "__init__.py").write_text("")
    (packages / "sglang" / "launch_server.py").write_text(
        "import socket, sys, time\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[sys.argv.index('--port') + 1])))\n"
        "print(s.getsockname()[1], file=sys.stderr, flush=True)\n"
        "print('up', flush=True)\n"
        "time.sleep(90)\n"
    )
    info = packages / "sglang-0.5.11.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.11\n")
    return folder


@pytest.fixture
def running(environment: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    python = environment / "bin" / "python"
    with (
        (tmp_path / "srv.log").open("wb") as log,
        subprocess.Popen(
            [python, "-m", "sglang.launch_server", "--model-path", "tiny model", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        ) as started,
    ):
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


async def test_a_server_started_by_anybody_is_found_with_version_and_log(
    running: subprocess.Popen[bytes], environment: Path, tmp_path: Path, host: LocalHost
) -> None:
    (server,) = [server for server in await find_servers(host) if server.pid == running.pid]
    assert (server.version, server.model) == ("0.5.11", "tiny model")
    assert server.python == str(environment / "bin" / "python")
    assert server.log_path == str(tmp_path / "srv.log")
    assert server.pgid == running.pid


async def test_the_version_is_asked_once_a_server(
    running: subprocess.Popen[bytes], environment: Path, host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = Finder(host)
    asked: list[str] = []
    run = host.run

    async def counted(script: str, **options: object) -> object:
        if str(environment) in script:
            asked.append(script)
        return await run(script, **options)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(host, "run", counted)
    for _ in range(3):
        (server,) = [server for server in (await finder.find()).servers if server.pid == running.pid]
        assert server.version == "0.5.11"
    assert len(asked) == 1


async def test_a_search_on_a_host_without_servers_is_empty_not_an_error(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text("btime 5\n")
    monkeypatch.setenv("TOKPIT_PROC", str(tmp_path))
    assert await find_servers(host) == ()
