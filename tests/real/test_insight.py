"""What tokpit concludes of a real vLLM whose draft head is dead: from its log, live, and of a plateau by its cap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import real_install
import real_serving as check
from real_line import Tokpit, options

from sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]
CAP = 2
LEVELS = (1, CAP, 4 * CAP)


@pytest.fixture(scope="module")
def served(tokpit: Tokpit, sshd: Sshd) -> Iterator[check.Served]:
    """A hybrid model with weights that the engine makes up: its draft head is as wrong as one that was not loaded."""
    words = (
        *("--env-dir", str(real_install.vllm()), *options(real_install.vllm_env())),
        *("--model", str(real_install.model("hybrid")), "--served-name", "dead", "--context", "2048"),
        *("--max-running", str(CAP), "--mtp-steps", str(check.STEPS), "--dtype", "bfloat16", "--listen", "127.0.0.1"),
        *("--", "--load-format", "dummy", "--enforce-eager", "--no-enable-prefix-caching"),
    )
    with check.serve(tokpit, sshd, "vllm", real_install.VLLM, "vllm:generation_tokens_total", *words) as made:
        yield made


@pytest.fixture(scope="module")
def run(served: check.Served) -> dict[str, Any]:
    """A sweep past the cap."""
    return check.sweep(served, *LEVELS)


@pytest.mark.parametrize("source", ["log", "live", "run"])
def test_a_dead_draft_is_told_first_with_its_evidence(served: check.Served, run: dict[str, Any], source: str) -> None:
    lengths = [level["result"]["accept_len"] for level in run["levels"]]
    assert all(1.0 <= length < 1.02 for length in lengths), lengths
    where = {"log": ("--log", str(served.log)), "live": (served.target,), "run": ("--run", run["id"])}[source]
    found = served.tokpit.json("diagnose", *where)["findings"]
    dead = found[0]
    assert (dead["code"], dead["severity"]) == ("DRAFT_DEAD", "error"), [one["code"] for one in found]
    assert "not merely weak" in dead["claim"]
    if source == "run":
        assert [line.split(":")[0] for line in dead["evidence"][:3]] == [f"C={c}" for c in LEVELS]
        return
    counted = re.match(r"\d+ of ([\d,]+) drafted tokens", dead["claim"])
    assert counted is not None, dead["claim"]
    assert int(counted[1].replace(",", "")) > 1000
    lines = served.log.read_text(errors="replace").splitlines()
    numbers = [int(match[1]) for line in dead["evidence"] if (match := re.search(r" line (\d+): acceptance", line))]
    assert numbers, dead["evidence"]
    assert all("SpecDecoding metrics" in lines[number - 1] for number in numbers)


def test_the_plateau_is_that_of_the_cap(served: check.Served, run: dict[str, Any]) -> None:
    said = (f"max_running_requests = {CAP}", "not by compute")
    check.plateau(served, run, "QUEUE_LIMITED_BY_MAX_RUNNING", *said, cap=CAP, levels=LEVELS)
    live = [one["code"] for one in served.tokpit.json("diagnose", served.target)["findings"]]
    assert live[0] == "DRAFT_DEAD", live
    assert live.count("QUEUE_LIMITED_BY_MAX_RUNNING") == 1, (
        "the newest sweep was not looked at, or the queue told twice"
    )
