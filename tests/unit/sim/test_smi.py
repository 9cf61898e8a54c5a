"""The simulated nvidia-smi: output forms of the driver's tool, figures of the engines."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from tokpit.sim import machine, smi, story


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "sim.json").write_text(f'{{"factor": 10, "utc": {time.time()}, "monotonic": {time.monotonic()}}}')
    return tmp_path


def ask(root: Path, *words: str) -> tuple[int, str]:
    out = io.StringIO()
    return smi.main([str(root), *words], out), out.getvalue()


def hold(root: Path, pid: int, mem_mib: float) -> None:
    state = {"worker_pid": pid, "mem_mib": mem_mib, "host_bytes": 10**9, "util": 97, "running": 3}
    machine.hold(root, pid, state)


def test_query_prints_one_row_in_the_order_asked(root: Path) -> None:
    hold(root, os.getpid(), 80_000.0)

    status, text = ask(
        root, "--query-gpu=memory.total,index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"
    )

    assert (status, text) == (0, f"{story.GPU_MEM_MIB}, 0, 97, 80640\n")


def test_units_and_header_unless_switched_off(root: Path) -> None:
    _, text = ask(root, "--query-gpu=name,memory.total,temperature.memory", "--format=csv")

    assert text.splitlines() == [
        "name, memory.total [MiB], temperature.memory",
        f"{story.GPU_NAME}, {story.GPU_MEM_MIB} MiB, N/A",
    ]


def test_unknown_field_fails_the_whole_query(root: Path) -> None:
    status, text = ask(root, "--query-gpu=name,clocks_throttle_reasons.active", "--format=csv")

    assert status == 2
    assert text.splitlines()[0] == 'Field "clocks_throttle_reasons.active" is not a valid field to query.'


def test_memory_of_a_dead_engine_is_free_again(root: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    hold(root, child, 80_000.0)
    os.waitpid(child, 0)

    assert ask(root, "--query-gpu=memory.used", "--format=csv,noheader,nounits") == (0, "4\n")
    assert ask(root, "--query-compute-apps=pid,used_memory", "--format=csv,noheader") == (0, "")


def test_compute_apps_list_the_scheduler(root: Path) -> None:
    hold(root, os.getpid(), 80_000.0)

    _, text = ask(root, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader")

    assert text == f"{story.GPU_UUID}, {os.getpid()}, sglang::scheduler, 80000 MiB\n"


def test_list_and_table_name_the_gpu(root: Path) -> None:
    assert story.GPU_UUID in ask(root, "-L")[1]
    assert f"{story.GPU_MEM_MIB}MiB" in ask(root)[1]


def test_long_report_has_the_slowdown_counters(root: Path) -> None:
    _, text = ask(root, "-q", "-d", "PERFORMANCE")

    after = text.partition("Clocks Event Reasons Counters")[2]
    assert [line.split(" : ")[1] for line in after.strip().splitlines()] == ["0 us"] * 5


def test_host_memory_falls_by_what_engines_pin(root: Path) -> None:
    machine.write_meminfo(root)
    before = machine.available_bytes(root)
    hold(root, os.getpid(), 1.0)

    assert before - machine.available_bytes(root) == 10**9
    assert f"MemAvailable:   {(before - 10**9) // 1024:>9} kB" in (root / "proc" / "meminfo").read_text()
