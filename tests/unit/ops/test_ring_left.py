"""What a killed console left behind is told once, by the next one."""

from __future__ import annotations

from pathlib import Path

from tokpit.domain.hostspec import HostSpec
from tokpit.ops.records.left import closed, news
from tokpit.store.recording.format import Head
from tokpit.store.recording.writer import Ring

HEAD = Head(hosts=(HostSpec(name="gpu1"),), clocks={})


def ring(folder: Path, name: str, *, left: bool) -> Path:
    """Of a process that has ended: in order, or killed."""
    made = Ring(folder / name)
    made.begin(1_796_000_000.0, HEAD, [])
    made.close(1_796_000_001.0)
    if not left:
        part = next(made.folder.iterdir())
        part.write_bytes(part.read_bytes()[:-4])
    return made.folder


def test_only_one_that_was_killed_is_told_and_only_once(tmp_path: Path) -> None:
    assert news(tmp_path) is None
    assert closed(ring(tmp_path, "20261130-100000_999999_1_vm", left=True))
    assert news(tmp_path) is None
    killed = ring(tmp_path, "20261130-110000_999998_1_vm", left=False)
    assert not closed(killed)
    ring(tmp_path, "20261130-120000_999997_1_vm", left=True)
    assert news(tmp_path) == killed
    assert news(tmp_path) is None
