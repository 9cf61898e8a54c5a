from __future__ import annotations

import subprocess
import sys

import pytest

from tokpit.transport.script import NOISE_LIMIT, Unframer, wrap


def test_noise_before_the_marker_is_dropped_however_it_is_cut() -> None:
    stream = b"Welcome\nmark-1 \nlater\nmark-12 4711\nmark-12 is data\n"
    for size in (1, 2, 5, 100):
        frame = Unframer("mark-12")
        out = b"".join(frame.feed(stream[i : i + size]) for i in range(0, len(stream), size))
        assert out == b"mark-12 is data\n"
        assert frame.pid == 4711
        assert frame.noise == b"Welcome\nmark-1 \nlater\n"


def test_endless_noise_does_not_fill_the_memory() -> None:
    frame = Unframer("mark-12")
    for _ in range(50):
        assert frame.feed(b"n" * 10_000) == b""
    assert len(frame.noise) <= NOISE_LIMIT
    assert frame.feed(b"mark-12 9\nyes") == b"yes"


def test_script_travels_as_one_line_and_holds_no_nul() -> None:
    sent = wrap("echo 1\necho '\\n'", "mark")
    assert sent.count(b"\n") == 1
    assert sent.endswith(b"\n")
    with pytest.raises(ValueError, match="NUL"):
        wrap("a\0b", "mark")


@pytest.mark.parametrize("module", ["base", "open", "ssh", "local", "commands", "detached", "follow", "files"])
def test_module_comes_without_the_slow_libraries(module: str) -> None:
    code = (
        f"import sys, tokpit.transport.{module}, tokpit.config.inventory, tokpit.config.themes\n"
        "print([name for name in ('asyncssh', 'aiohttp', 'cryptography', 'textual') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
