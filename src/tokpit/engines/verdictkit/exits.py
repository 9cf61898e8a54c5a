"""What an exit status, a signal or a dying child's status says by itself."""

from __future__ import annotations

import signal as signals

from tokpit.domain.verdict import Verdict
from tokpit.engines.verdictkit.signature import Case, evidence_text, retell

_OOM_ACTION = (
    "Ask the kernel (`dmesg -T`, `journalctl -k`; without permission: memory.events of the cgroup), then compare "
    "MemAvailable and the cgroup limit with what the server needs; lower host caches, or load with fewer processes "
    "at once."
)

KILLED_BY = {
    "KILL": (
        "HOST_OOM_KILLED",
        "was killed (SIGKILL): on a server's start or run this is nearly always the kernel's OOM killer",
        _OOM_ACTION,
    ),
    "SEGV": (
        "SEGFAULT",
        "crashed with a segmentation fault (SIGSEGV): native code, not Python",
        "Check that driver, CUDA, torch and kernel packages fit together; run once with PYTHONFAULTHANDLER=1 for the "
        "stack.",
    ),
    "ABRT": (
        "ABORTED",
        "was aborted by native code (SIGABRT): usually an NCCL timeout or a C++ assertion just above",
        "Read the lines above the abort; with several GPUs set NCCL_DEBUG=INFO and start again.",
    ),
    "ILL": (
        "ILLEGAL_INSTRUCTION",
        "used an instruction that this CPU lacks (SIGILL)",
        "Install a build for this CPU (without AVX-512 or AMX).",
    ),
    "BUS": (
        "SHM_TOO_SMALL",
        "hit a bus error (SIGBUS): nearly always /dev/shm is full",
        "Give the container more shared memory (`--shm-size`, `--ipc=host`) and look at `df /dev/shm`.",
    ),
    "FPE": ("ABORTED", "was stopped by an arithmetic fault (SIGFPE)", "Check that the native packages fit together."),
}


def signal_name(status: int | None, signal: str | None = None) -> str | None:
    """`KILL` for -9, 137 or `SIGKILL`; None for a plain exit status."""
    if signal:
        return signal.upper().removeprefix("SIG")
    if status is None:
        return None
    number = -status if status < 0 else status - 128 if 128 < status < 160 else 0
    if not number:
        return None
    try:
        return signals.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return None


def exit_evidence(status: int | None, signal: str | None) -> tuple[str, ...]:
    """Exit status and signal as evidence, spelled out; empty where neither is known."""
    name = signal_name(status, signal)
    if status is None and name is None:
        return ()
    if name is None:
        return (f"exit status {status}",)
    return (f"exit status {status} = SIG{name}" if status is not None else f"ended by SIG{name}",)


def exit_verdict(case: Case, bad_exit: bool) -> Verdict | None:
    """What the exit alone says, where the log names no cause; None for a clean end or none."""
    if not bad_exit:
        return None
    name = signal_name(case.exit_code, case.signal)
    line = case.lines[case.at] if case.lines else None
    evidence = (*exit_evidence(case.exit_code, case.signal), *((evidence_text(line),) if line else ()))
    lines = (line.number,) if line else ()
    if name in KILLED_BY:
        code, what, action = KILLED_BY[name]
        return Verdict(
            code=code,
            phase=case.phase,
            sentence=f"The server {what}.",
            next_action=action,
            evidence=evidence,
            lines=lines,
        )
    if case.exit_code == 127:
        return Verdict(
            code="COMMAND_NOT_FOUND",
            phase="args",
            sentence="The command of the launch was not found (exit status 127).",
            next_action="Give the full path of the interpreter or binary, as the launch user sees it.",
            evidence=evidence,
            lines=lines,
        )
    return Verdict(
        code="EXITED",
        phase=case.phase,
        sentence=f"The server ended (exit status {case.exit_code}) and its log does not say why.",
        next_action="Look at the last lines of the log, and start once more with a higher log level.",
        evidence=evidence,
        lines=lines,
    )


def by_exit(verdict: Verdict, case: Case) -> Verdict | None:
    """Refinement for lines that say that a process died, and not of what: the server's own signal may."""
    name = signal_name(case.exit_code, case.signal)
    if name not in KILLED_BY:
        return verdict
    code, what, action = KILLED_BY[name]
    return retell(verdict, {"signal": f"SIG{name}"}, code=code, sentence=f"The server {what}.", next_action=action)


def by_status(verdict: Verdict, case: Case) -> Verdict | None:
    """Refinement for lines such as "died (exit code: -9)": the figure `status` decides the code."""
    status = verdict.figures.get("status")
    name = signal_name(int(status)) if isinstance(status, int | float) else None
    if name not in KILLED_BY:
        return verdict
    code, what, action = KILLED_BY[name]
    phase = {"load": " during weight load", "capture": " during graph capture", "memory": " while pools were allocated"}
    who = verdict.figures.get("who", "A server process")
    return retell(
        verdict,
        {"signal": f"SIG{name}"},
        code=code,
        sentence=f"{who} {what}{phase.get(verdict.phase, '')}; exit code {status} = SIG{name}.",
        next_action=action,
    )
