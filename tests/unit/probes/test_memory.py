from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tokpit.probes import memory
from tokpit.probes.memory import CpuTimes, MemInfo, MemoryReading

GIB = 1 << 30


@pytest.mark.parametrize("shell", [["dash"], ["bash"], ["busybox", "sh"]], ids=lambda words: words[0])
def test_the_script_reads_this_machine(shell: list[str], tmp_path: Path) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    script = memory.script(str(tmp_path / "not" / "there yet"))
    done = subprocess.run([*shell, "-s"], input=script.encode(), capture_output=True, timeout=50, check=True)
    reading = memory.parse(done.stdout.decode())
    assert reading.memory.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert reading.memory.available is not None
    assert 0 < reading.memory.available < reading.memory.total
    assert reading.cores == os.cpu_count()
    assert reading.load1 is not None
    space = shutil.disk_usage(tmp_path)
    assert reading.disk is not None
    assert reading.disk.total == pytest.approx(space.total, rel=0.1)
    usable = reading.usable
    assert usable is not None
    assert usable <= reading.memory.available


def test_processor_use_is_what_was_busy_in_between() -> None:
    text = "@@tokpit meminfo\nMemTotal: 100 kB\n@@tokpit cpu\ncpu  {} 0 0 {} {} 0 0 0 7 0\ncpu0 1 1 1 1\n@@tokpit end\n"
    before, after = (memory.parse(text.format(*ticks)) for ticks in ((100, 800, 100), (130, 860, 110)))
    record = after.record("h", 9.0, before)
    assert record.cpu_util == pytest.approx(0.3)
    assert (record.cores, before.record("h", 8.0, None).cpu_util) == (1, None)


def test_counters_that_went_back_say_nothing() -> None:
    assert CpuTimes(5, 100).util_since(CpuTimes(50, 900)) is None


def test_memory_of_an_old_kernel_is_unknown_not_zero() -> None:
    found = memory.parse_meminfo("MemTotal:  2048 kB\nMemFree: 4 kB\nSwapTotal: 8 kB\nSwapFree: 2 kB\n")
    assert (found.total, found.available, found.shm, found.swap_used) == (2 << 20, None, None, 6144)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("max 123\nmax 456\n", (None, None)),
        (f"{8 * GIB} {GIB}\n{4 * GIB} {2 * GIB}\nmax 1\n", (4 * GIB, 2 * GIB)),
        ("9223372036854771712 77\n", (None, None)),
        (f"{64 * GIB} 5\n", (None, None)),
        (f"{2 * GIB} ?\n", (2 * GIB, None)),
        ("", (None, None)),
    ],
    ids=["v2 unlimited", "tightest parent", "v1 unlimited", "above the machine", "use unreadable", "no cgroup"],
)
def test_the_tightest_cgroup_counts(lines: str, expected: tuple[int | None, int | None]) -> None:
    assert memory.parse_cgroup(lines, 32 * GIB) == expected


def test_a_cgroup_bounds_what_is_usable() -> None:
    host = MemInfo(total=32 * GIB, available=20 * GIB)
    assert MemoryReading(memory=host).usable == 20 * GIB
    assert MemoryReading(memory=host, cgroup_limit=8 * GIB, cgroup_used=3 * GIB).usable == 5 * GIB
    assert MemoryReading(memory=host, cgroup_limit=31 * GIB, cgroup_used=0).usable == 20 * GIB


def test_a_host_without_proc_is_refused() -> None:
    with pytest.raises(ValueError, match="memory"):
        memory.parse("@@tokpit meminfo\ncat: /proc/meminfo: No such file\n@@tokpit end\n")
