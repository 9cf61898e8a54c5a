"""Real vLLM servers that were started by hand and by tokpit: adopted, told apart, put back, orphaned, hung."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_install
from real_line import Stream, Tokpit, counter, free_port, group, options, wait

from process_tools import alive

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
TERM_WAIT_S = 8
PROMPTS = 64
FLAGS = ("--load-format", "dummy", "--enforce-eager", "--max-model-len", "4096", "--host", "127.0.0.1")


class Pair:
    """Two servers on one host: `hand` was started by hand, `own` by tokpit."""

    def __init__(self, tokpit: Tokpit, folder: Path) -> None:
        self.tokpit = tokpit
        self.hand, self.own = free_port(), free_port()
        self.log = folder / "by-hand.log"
        env = {**tokpit.env, **real_install.vllm_env()}
        env.pop("PYTHONPATH", None)
        words = [str(real_install.vllm() / "bin/vllm"), "serve", str(real_install.model("dense")), *FLAGS]
        with self.log.open("wb") as log:
            self.by_hand = subprocess.Popen(
                [*words, "--port", str(self.hand), "--served-model-name", "hand"],
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.made = tokpit.json(
            *("launch", "real", "vllm", "--yes", "--env-dir", str(real_install.vllm())),
            *options(real_install.vllm_env()),
            *("--model", str(real_install.model("dense")), "--port", str(self.own), "--served-name", "own"),
            *("--", *FLAGS),
        )
        assert wait(lambda: "Application startup complete" in self.log.read_text(errors="replace"), 300)

    def row(self, port: int) -> dict[str, object] | None:
        """What `tokpit ps` says of a port."""
        rows = [row for row in self.tokpit.json("ps", "real")["servers"] if row["port"] == port]
        return rows[0] if rows else None

    def orphans(self) -> list[dict[str, object]]:
        """Workers without a server."""
        found: list[dict[str, object]] = self.tokpit.json("ps", "real")["orphans"]
        return found

    def end(self) -> None:
        """Kill what is left of both groups."""
        pids = {self.by_hand.pid, *(int(row["pid"]) for port in (self.hand, self.own) if (row := self.row(port)))}  # type: ignore[call-overload]
        for pid in pids | {int(self.made["pid"])}:
            for member in group(pid):
                os.kill(member, signal.SIGKILL)
        self.by_hand.wait()


@pytest.fixture(scope="module")
def pair(tokpit: Tokpit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tokpit, tmp_path_factory.mktemp("hand"))
    try:
        yield made
    finally:
        made.end()


def test_a_server_started_by_hand_is_adopted_with_its_log(pair: Pair) -> None:
    row = pair.row(pair.hand)
    assert row is not None
    assert (row["pid"], row["log_path"], row["launched_by_tokpit"]) == (pair.by_hand.pid, str(pair.log), False)
    done = pair.tokpit.json("adopt", f"real:{pair.hand}", "--yes")
    assert (done["pid"], done["method"], done["log_path"]) == (pair.by_hand.pid, "adopted", str(pair.log))
    row = pair.row(pair.hand)
    assert row is not None
    assert row["launched_by_tokpit"], "known from now on, to any tokpit"
    again = pair.tokpit.run("adopt", f"real:{pair.hand}", "--yes")
    assert again.returncode != 0
    assert "recorded already" in again.stderr


def test_the_right_one_of_two_is_stopped_although_a_stream_hangs_on_it(pair: Pair) -> None:
    stream = Stream(pair.hand, "hand", 4000, prompts=PROMPTS)
    stream.until_tokens()
    assert wait(lambda: counter(pair.hand, "vllm:num_requests_running") == PROMPTS), "the stream is not open in full"
    done = pair.tokpit.json("stop", f"real:{pair.hand}", "--yes", "--term-wait", str(TERM_WAIT_S))
    assert done["pid"] == pair.by_hand.pid
    assert done["port_free"]
    assert not group(pair.by_hand.pid)
    stream.join(30)
    assert not stream.ended, "vLLM does not let a stream end"
    # What TERM does to vLLM while it streams is not always the same: mostly it stays until it is killed, sometimes it
    # goes and cuts its clients off. What is told of it must be what happened.
    assert (done["signal"], done["elapsed_s"] >= TERM_WAIT_S) in {("KILL", True), ("TERM", False)}
    assert pair.row(pair.hand) is None
    assert alive(pair.made["pid"])
    other = Stream(pair.own, "own", 4)
    other.join(60)
    assert other.ended, "the other server serves on"


def test_a_relaunch_that_fails_while_loading_brings_the_earlier_server_back(pair: Pair) -> None:
    before = pair.row(pair.own)
    assert before is not None
    done = pair.tokpit.run(
        *("relaunch", f"real:{pair.own}", "--yes", "--rollback", "-e", "VLLM_CPU_KVCACHE_SPACE=100000"),
        *("--served-name", "changed"),
    )
    assert done.returncode == 5, done.stdout + done.stderr
    assert re.search(r"the earlier server was started again and was ready after \d+ s", done.stderr), done.stderr
    after = pair.row(pair.own)
    assert after is not None
    assert after["pid"] != before["pid"]
    assert not group(int(before["pid"]))  # type: ignore[call-overload]
    assert after["served_name"] == "own"
    served = Stream(pair.own, "own", 4)
    served.join(60)
    assert served.ended


def test_a_killed_api_server_leaves_an_engine_core_that_is_listed_and_ended(pair: Pair) -> None:
    row = pair.row(pair.own)
    assert row is not None
    pid, children = int(row["pid"]), [int(child) for child in row["children"]]  # type: ignore[call-overload, attr-defined]
    os.kill(pid, signal.SIGKILL)
    assert wait(lambda: not alive(pid), 20)
    assert pair.row(pair.own) is None
    assert wait(lambda: any(orphan["pid"] in children for orphan in pair.orphans()), 30), pair.orphans()
    mine = [orphan for orphan in pair.orphans() if orphan["pid"] in children]
    assert str(mine[0]["title"]).startswith("VLLM::")
    done = pair.tokpit.json("stop", f"real/{mine[0]['pid']}", "--yes", "--term-wait", "20")
    assert done["signal"] == "TERM"
    assert done["elapsed_s"] < 20
    assert not [child for child in children if alive(child)]
    assert not [orphan for orphan in pair.orphans() if orphan["pid"] in children]
