"""What tokpit concludes of a real vLLM whose draft head is dead: from its log, live, and from two runs compared."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import real_install
import real_serving as check
from real_line import Tokpit, options

from sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]
CAP = 2


@pytest.fixture(scope="module")
def served(tokpit: Tokpit, sshd: Sshd) -> Iterator[check.Served]:
    words = (
        *("--env-dir", str(real_install.vllm()), *options(real_install.vllm_env())),
        *("--model", str(real_install.model("dead")), "--served-name", "dead", "--context", "2048"),
        *("--max-running", str(CAP), "--mtp-steps", "3", "--dtype", "bfloat16", "--listen", "127.0.0.1"),
        *("--", "--enforce-eager", "--no-enable-prefix-caching"),
    )
    with check.serve(tokpit, sshd, "vllm", real_install.VLLM, "vllm:generation_tokens_total", *words) as made:
        yield made


def test_a_dead_draft_is_told_from_the_log_and_live_and_its_price_by_comparison(served: check.Served) -> None:
    with_drafts = check.sweep(served, 1, CAP, 4 * CAP)
    assert [round(level["result"]["accept_len"], 2) for level in with_drafts["levels"]] == [1.0] * 3
    log = served.tokpit.json("diagnose", "--log", str(served.log))["findings"]
    live = served.tokpit.json("diagnose", served.target)["findings"]
    for found in (log, live):
        dead = found[0]
        assert (dead["code"], dead["severity"]) == ("DRAFT_DEAD", "error"), [one["code"] for one in found]
        assert "0 of" in dead["claim"]
        assert any("SpecDecoding metrics" in line for line in dead["evidence"])

    check.relaunch(served, "--mtp-steps", "0")
    without = check.sweep(served, 1, CAP, 4 * CAP)
    done = served.tokpit.run("compare", with_drafts["id"], without["id"], "--json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["comparisons"][0]
    assert {pair["level"] for pair in found["comparison"]["pairs"]} == {"C=1", f"C={CAP}", f"C={4 * CAP}"}
    changed = {one["name"]: (one["before"], one["after"]) for one in found["changes"]}
    assert changed["spec steps"] == ("3", "not given")
    assert "version" not in changed
    page = served.tokpit.run("report", with_drafts["id"], without["id"], "-f", "html")
    assert page.stdout.count("<svg") == 4, page.stderr
