"""Field problems told by files and facts as the command line takes them: is the right verdict on top?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokpit.ops.diagnose.run import Sources, diagnose_files

NOTES = {
    *("ROOFLINE", "OPERATING_POINT", "LATENCY_BY_LITTLE", "SPEC_STEP_COST", "LAST_WAVE", "ONE_AT_A_TIME"),
    *("STATE_SLOTS_OF_ONE_REQUEST", "PLATEAU_COMPUTE", "SPEC_LIMIT", "PREFILL_CEILING", "TTFT_PREFILL_BOUND"),
    *("HOST_CACHE_PAYS", "HOST_CACHE_UNUSED"),
}
FILES = {"log": "logs", "logs": "logs", "sweep": "sweeps", "sweeps": "sweeps", "compare": "compare", "gpu": "gpus",
         "metrics": "metrics"}  # fmt: skip


def sources(folder: Path, inputs: dict[str, Any]) -> Sources:
    files: dict[str, tuple[str, ...]] = {}
    facts = []
    for name, value in inputs.items():
        if name not in FILES:
            facts.append((name, str(value)))
            continue
        many = name in ("logs", "sweeps", "metrics") or (name == "gpu" and isinstance(value, list))
        for number, text in enumerate(value if many else [value]):
            path = folder / f"{name}{number}.txt"
            path.write_text(text if isinstance(text, str) else "\n".join(text))
            files[FILES[name]] = (*files.get(FILES[name], ()), str(path))
    return Sources(**files, facts=tuple(facts))  # type: ignore[arg-type]


def on_top_or_silent(want: tuple[str, ...], inputs: dict[str, Any], folder: Path) -> None:
    """One of the codes is on top; without codes nothing is said but notes on a sweep or a ceiling."""
    found = diagnose_files(sources(folder, inputs))
    assert found.notes == ()
    codes = [finding.code for finding in found.findings]
    if want:
        assert codes, "nothing was said"
        assert codes[0] in want, codes
    else:
        alarms = [f.claim for f in found.findings if f.severity != "info" or f.code not in NOTES]
        assert alarms == []
