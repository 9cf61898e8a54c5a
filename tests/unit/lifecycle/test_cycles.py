"""Launch and stop, again and again over one connection: nothing is left but logs."""

from __future__ import annotations

from pathlib import Path

from lifecycle_tools import traces
from sshd import Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.records import Operation, ServersRecord
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.ops.session import Session
from tokpit.store.live import GONE_KEPT, OPERATIONS_KEPT, LiveStore


async def test_cycles_over_ssh_leave_no_process_no_file_no_channel_and_no_task(
    sshd: Sshd, engine_dir: Path, home: Path, tmp_path: Path, unused_tcp_port: int
) -> None:
    shm = tmp_path / "shm"
    spec = LaunchSpec(
        host="box",
        engine="vllm",
        program=(str(engine_dir),),
        settings=Settings(model="tiny", port=unused_tcp_port),
        env={"FAKE_LEAVES": "1", "FAKE_SHM": str(shm), "CYCLE_MARK": str(home)},
    )
    seen, listeners = [], []
    inventory = Inventory(hosts={"box": sshd.spec("box")})
    async with Session(inventory, history_path=tmp_path / "h.sqlite", assume_yes=True) as session:
        for _ in range(4):
            launched = await session.execute("server.launch", spec=spec, timeout_s=40)
            during = traces(session, sshd.home, str(home))
            assert launched.state.pid in during.processes
            assert len(during.processes) == 2
            await session.execute("server.stop", target=f"box:{unused_tcp_port}", term_wait_s=10)
            seen.append(traces(session, sshd.home, str(home)))
            listeners.append(len(session.host("box")._listeners))  # type: ignore[attr-defined]  # SshHost's own
        link = len(sshd.sessions())
    first, last = seen[0], seen[-1]
    assert last.processes == ()
    assert last.files == first.files
    assert not [path for path in last.files if path.startswith(".local/state/tokpit/launches")]
    assert last.logs == 4
    assert (last.open_files, last.tasks) == (first.open_files, first.tasks)
    assert len(set(listeners)) == 1, "who watched a server that is gone listens to its link no more"
    assert link <= 2, "one connection, with or without privilege separation"


def test_what_is_kept_of_servers_and_operations_that_are_over_is_bounded() -> None:
    store = LiveStore()
    for pid in range(1, 40):
        info = ServerInfo(host="h", engine="vllm", pid=pid, start_ticks=pid, pgid=pid)
        store.apply(ServersRecord("h", float(pid), (info,)))
    running = Operation(id="0", kind="sweep", target="h", title="", started_t=0.0, t=0.0, status="running")
    store.apply(running)
    for n in range(1, OPERATIONS_KEPT + 50):
        store.apply(Operation(id=str(n), kind="stop", target="h", title="", started_t=n, t=n, status="done"))
    assert len(store.servers) == GONE_KEPT + 1
    assert "h/39@39" in store.servers
    assert len(store.operations) == OPERATIONS_KEPT
    assert store.operations["0"] == running, "what runs is never dropped"
    assert list(store.operations)[-1] == str(OPERATIONS_KEPT + 49)
