from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokpit.probes import processes
from tokpit.probes.processes import Process, ProcessTable

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}
TOOLS = ("awk", "od", "tr", "ls", "cat", "head", "id", "date", "getconf", "readlink")
WAIT = (
    "import socket,time; s=socket.create_server(('127.0.0.1',0)); print(s.getsockname()[1],flush=True); time.sleep(90)"
)
TEMPLATE = "first {{ line }}\nsecond line\n"


class Started:
    """A process of the test with a server's command line, its port and its log."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "server one.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["python3", "-c", WAIT, "sglang.launch_server", "--chat-template", TEMPLATE, "--served-name", ""],
                executable=sys.executable,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    it = Started(tmp_path)
    yield it
    it.process.kill()
    it.process.wait()
    assert it.process.stdout is not None
    it.process.stdout.close()


@pytest.fixture(params=["python3", "no python3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A PATH with or without python3."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    if request.param == "python3":
        (tools / "python3").symlink_to(Path(sys.executable).resolve())
    return str(tools)


def table(shell: str, path: str, **env: str) -> ProcessTable:
    words = SHELLS[shell]
    program = shutil.which(words[0])
    if program is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(
        [program, *words[1:], "-s"],
        input=processes.script(["sglang", "vllm", "llama"]).encode(),
        capture_output=True,
        env={"PATH": path, **env},
        timeout=50,
        check=False,
    )
    return processes.parse(done.stdout.decode("utf-8", "replace"))


def one(found: ProcessTable, pid: int) -> Process:
    (process,) = [process for process in found.processes if process.pid == pid]
    return process


@pytest.mark.parametrize("shell", SHELLS)
def test_a_process_is_told_exactly_by_every_shell(shell: str, path: str, started: Started) -> None:
    found = table(shell, path)
    process = one(found, started.process.pid)
    assert process.argv == (
        "python3",
        "-c",
        WAIT,
        "sglang.launch_server",
        "--chat-template",
        TEMPLATE,
        "--served-name",
        "",
    )
    assert process.ppid == os.getpid()
    assert process.pgid == process.sid == process.pid
    assert process.uid == os.getuid()
    assert process.user not in ("", str(os.getuid()))
    assert process.cwd == str(started.log.parent)
    assert process.exe == str(Path(sys.executable).resolve())
    assert process.stdout.startswith("pipe:[")
    assert process.stdout_kind == ""
    assert (process.stderr, process.stderr_kind) == (str(started.log), "file")
    assert process.rss_bytes > 1 << 20
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    assert process.start_ticks == int(stat.rpartition(")")[2].split()[19])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_listening_port_leads_to_the_process(shell: str, path: str, started: Started) -> None:
    found = table(shell, path)
    (listener,) = [listener for listener in found.listeners if listener.port == started.port]
    assert listener.address == "127.0.0.1"
    assert listener.pids == (started.process.pid,)


def test_boot_and_start_times_fit_the_clock(path: str, started: Started) -> None:
    found = table("dash", path)
    process = one(found, started.process.pid)
    began = found.started_at(process.start_ticks)
    assert began is not None
    assert found.now is not None
    assert -3 < found.now - began < 120
    assert found.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_removed_log_is_known_as_removed(shell: str, path: str, started: Started) -> None:
    started.log.unlink()
    assert one(table(shell, path), started.process.pid).stderr_kind == "deleted"


def test_ancestors_are_told_and_the_script_itself_is_no_candidate(path: str, started: Started) -> None:
    found = table("dash", path)
    assert one(found, os.getpid()).argv == ()
    assert not [p for p in found.processes if "sglang" in p.argv and "vllm" in p.argv]


def fake_proc(root: Path, rows: dict[int, tuple[bytes, bytes]]) -> None:
    for pid, (comm, cmdline) in rows.items():
        folder = root / str(pid)
        folder.mkdir(parents=True)
        tail = f"S 1 {pid} {pid} 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {pid * 100} 1000 25 0\n".encode()
        (folder / "stat").write_bytes(f"{pid} (".encode() + comm + b") " + tail)
        (folder / "cmdline").write_bytes(cmdline)
        (folder / "status").write_text("Name:\tx\nUid:\t4242\t4242\t4242\t4242\n")
        (folder / "cgroup").write_text(f"0::/system.slice/docker-{'ab' * 32}.scope\n")
    (root / "stat").write_text("cpu  1 2 3 4\nbtime 1700000000\n")
    (root / "net").mkdir()
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = "   0: 00000000000000000000000000000000:7530 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n"
    (root / "net" / "tcp6").write_text(head + row)


@pytest.mark.parametrize("shell", SHELLS)
def test_odd_names_titles_and_owners_survive(shell: str, path: str, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    fake_proc(
        proc,
        {
            31: (b"odd) S 9 (x", b"VLLM::EngineCore\0\0\0\0\0\0\0"),
            32: (b"python3", b"python3\0-m\0vllm.entrypoints\0--name\0\xff\x1b[31mred\0"),
            33: (b"kworker", b""),
            34: (b"editor", b"nano\0notes.txt\0"),
            2: (b"python3", b"python3\0-m\0sglang.launch_server\0"),  # as in a container of its own
        },
    )
    found = table(shell, path, TOKPIT_PROC=str(proc))
    title = one(found, 31)
    assert (title.comm, title.argv, title.ppid, title.start_ticks) == ("odd) S 9 (x", ("VLLM::EngineCore",), 1, 3100)
    assert one(found, 2).argv[-1] == "sglang.launch_server"
    assert (title.uid, title.user, title.container) == (4242, "4242", "abababababab")
    assert one(found, 32).argv[-1] == "\ufffdred"
    assert found.started_at(3100) == 1700000000 + 31.0
    assert {p.pid for p in found.processes if p.argv} == {2, 31, 32}
    assert [(listener.address, listener.port, listener.pids) for listener in found.listeners] == [("::", 30000, ())]
    assert found.ports_in_use() == {30000}
    assert found.total == 5


def test_the_container_that_tokpit_itself_runs_in_is_not_named() -> None:
    group = f"0::/docker/{'5c' * 32}"
    other = f"0::/docker/{'6d' * 32}"
    rows = "".join(f"p {pid} 1 9 9 200 3 S x\n" for pid in (8, 9))
    text = f"@@tokpit processes\nb cgroup {group.encode().hex()}\n{rows}"
    text += f"g 8 {group.encode().hex()}\ng 9 {other.encode().hex()}\ne\n"
    assert [process.container for process in processes.parse(text).processes] == [None, "6d6d6d6d6d6d"]


def test_login_noise_before_the_table_is_not_read() -> None:
    text = "Welcome!\np 1 2 3\n@@tokpit processes\r\nb btime 5\r\np 9 1 9 9 200 3 S some name\r\ne\r\n"
    found = processes.parse(text)
    assert [(p.pid, p.comm) for p in found.processes] == [(9, "some name")]


def test_a_table_that_was_cut_short_is_refused() -> None:
    with pytest.raises(ValueError, match="incomplete"):
        processes.parse("@@tokpit processes\nb btime 5\np 9 1 9 9 200 3 S x\n")


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        (f"12:memory:/docker/{'0f' * 32}", "0f0f0f0f0f0f"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'1a' * 32}.scope", "1a1a1a1a1a1a"),
        (f"0::/machine.slice/libpod-{'2b' * 32}.scope/container", "2b2b2b2b2b2b"),
    ],
)
def test_container_of_a_cgroup_path(cgroup: str, container: str | None) -> None:
    assert processes.container_id(cgroup) == container
