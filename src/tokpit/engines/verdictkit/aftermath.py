"""A verdict made sharper by what the host says after the failure: sockets, kernel log, GPU processes, GPU sizes.

A log says "address in use", "exit code -9", "memory is unbalanced"; only the host knows by whom. `questions` names the
read-only commands whose output helps for a verdict; `with_host` reads that output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tokpit.domain.records import GpuSample
from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.signature import retell, whole


class HostEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Output of commands on the host, as text; None: not asked, or not allowed to."""

    sockets: str | None = None
    """`ss -tanpH` (or with a port filter)."""
    kernel_log: str | None = None
    """`dmesg -T` or `journalctl -k`."""
    gpu_processes: str | None = None
    """`nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv,noheader`."""
    topology: str | None = None
    """`nvidia-smi topo -m`."""
    gpus: Sequence[GpuSample] = ()


_QUESTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "PORT_IN_USE": (("ss", "-tanpH", "sport = :{port}"),),
    "INTERNAL_PORT_IN_USE": (("ss", "-tanpH", "sport = :{port}"),),
    "HOST_OOM_KILLED": (("dmesg", "-T"), ("journalctl", "-k", "-n", "200", "--no-pager")),
    "WORKER_DIED": (("dmesg", "-T"),),
    "ENGINE_CORE_GONE": (("dmesg", "-T"),),
    "PROCESS_DIED": (("dmesg", "-T"),),
    "STUCK_NCCL_INIT": (("nvidia-smi", "topo", "-m"),),
}
_GPU_APPS = ("nvidia-smi", "--query-compute-apps=pid,used_memory,name", "--format=csv,noheader")
_GPU_CODES = {
    "FAILED_BUT_HOLDING_GPU",
    "UNBALANCED_GPUS",
    "GPU_MEMORY_TAKEN",
    "NO_KV_MEMORY",
    "OOM_LOADING",
    "OOM_GPU",
    "ROOT_CAUSE_FIRST",
}


def questions(verdict: Verdict) -> tuple[tuple[str, ...], ...]:
    """argv of the read-only commands whose output would sharpen this verdict; empty where none would."""
    asked = [
        tuple(word.replace("{port}", str(verdict.figures.get("port", ""))) for word in words)
        for words in _QUESTIONS.get(verdict.code, ())
        if "{port}" not in "".join(words) or "port" in verdict.figures
    ]
    return (*asked, _GPU_APPS) if verdict.code in _GPU_CODES else tuple(asked)


def with_host(verdict: Verdict, host: HostEvidence) -> Verdict:
    """The verdict with the host's answer worked in; unchanged where it adds nothing."""
    if verdict.code in {"PORT_IN_USE", "INTERNAL_PORT_IN_USE"} and host.sockets is not None:
        return _port(verdict, host.sockets)
    if verdict.code in {"HOST_OOM_KILLED", "WORKER_DIED", "ENGINE_CORE_GONE", "PROCESS_DIED"} and host.kernel_log:
        return _oom(verdict, host.kernel_log)
    if verdict.code == "STUCK_NCCL_INIT" and host.topology:
        return _peers(verdict, host)
    if verdict.code == "UNBALANCED_GPUS":
        return _unbalanced(verdict, host)
    if verdict.code in _GPU_CODES and host.gpu_processes:
        return _holders(verdict, host.gpu_processes)
    return verdict


_GPU_ROW = re.compile(r"^\s*GPU\d+\s+(?P<links>.*)$", re.MULTILINE)
_LINK = re.compile(r"\b(?:NV\d+|PHB|NODE|SYS|PIX|PXB)\b")


def _peers(verdict: Verdict, host: HostEvidence) -> Verdict:
    """Several GPUs of one host that reach each other over PCIe only: peer access may be redirected by the IOMMU."""
    rows = [m["links"] for m in _GPU_ROW.finditer(host.topology or "")]
    links = {link for row in rows for link in _LINK.findall(row)}
    if not links or any(link.startswith("NV") for link in links) or "nodes" in verdict.figures:
        return verdict
    shown = ", ".join(sorted(links))
    return retell(
        verdict,
        {"links": shown},
        code="STUCK_P2P_IOMMU",
        sentence=f"The GPUs wait for each other and are linked by PCIe only ({shown}, no NVLink): peer access is "
        f"probably blocked by IOMMU or ACS. {verdict.sentence}",
        next_action="Start again with NCCL_P2P_DISABLE=1 in the server's environment (and custom all-reduce off); for "
        "good: IOMMU off (iommu=pt or off) and ACS off in the host's firmware or kernel line.",
        fixes=(Fix(label="NCCL_P2P_DISABLE=1", env={"NCCL_P2P_DISABLE": "1"}),),
        evidence=(*verdict.evidence, f"nvidia-smi topo -m: {shown}"),
    )


_LISTEN = re.compile(
    r"^LISTEN\s+\d+\s+\d+\s+(?P<local>\S+):(?P<port>\d+)\s+\S+(?:\s+users:\(\(\"(?P<name>[^\"]+)\",pid=(?P<pid>\d+))?"
)
_WAITING = re.compile(r"^TIME-WAIT\s+\d+\s+\d+\s+\S+:(?P<port>\d+)\s")


def _port(verdict: Verdict, sockets: str) -> Verdict:
    port = whole(verdict, "port")
    rows = [row.strip() for row in sockets.splitlines()]
    listening = [m for row in rows if (m := _LISTEN.match(row)) and port in (None, int(m["port"]))]
    waiting = [m for row in rows if (m := _WAITING.match(row)) and port in (None, int(m["port"]))]
    if listening:
        owner = listening[0]
        who = f"pid {owner['pid']} ({owner['name']})" if owner["pid"] else "a process of another user"
        figures: dict[str, float | str] = {"port": int(owner["port"])}
        if owner["pid"]:
            figures |= {"pid": int(owner["pid"]), "name": owner["name"]}
        return retell(
            verdict,
            figures,
            sentence=f"Port {owner['port']} is held by {who}.",
            next_action=(
                "See since when it runs and whether tokpit started it; stop it if it is yours, or take another port."
            ),
            evidence=(*verdict.evidence, owner.group(0)),
        )
    if waiting and verdict.code == "PORT_IN_USE":
        return retell(
            verdict,
            {"port": int(waiting[0]["port"]), "time_wait": len(waiting)},
            code="PORT_TIME_WAIT",
            sentence=f"Port {waiting[0]['port']} is in TIME-WAIT after an earlier server: nobody owns it.",
            arithmetic=f"0 listeners, {len(waiting)} sockets in TIME-WAIT",
            next_action="Wait up to 60 s and start again, or take another port; there is nothing to stop.",
            evidence=(*verdict.evidence, *(m.group(0) for m in waiting[:2])),
        )
    return verdict


_KILLED = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+)(?: \((?P<name>[^)]*)\))?"
    r"(?:.*?anon-rss:(?P<rss_kb>\d+)kB)?"
)


def _oom(verdict: Verdict, kernel_log: str) -> Verdict:
    rows = [(m, row) for row in kernel_log.splitlines() if (m := _KILLED.search(row))]
    if not rows:
        return verdict
    match, row = rows[-1]
    figures: dict[str, float | str] = {"pid": int(match["pid"]), "name": match["name"] or ""}
    arithmetic = verdict.arithmetic
    held = ""
    if match["rss_kb"]:
        rss = int(match["rss_kb"])
        figures["rss_gib"] = round(rss / 1048576, 1)
        held = f", which held {rss / 1048576:.1f} GiB"
        arithmetic = f"anon-rss {rss} kB / 1048576 = {rss / 1048576:.1f} GiB"
    when = " during weight load" if verdict.phase == "load" else ""
    return retell(
        verdict,
        figures,
        code="HOST_OOM_KILLED",
        sentence=f"The kernel's OOM killer ended pid {match['pid']} ({match['name'] or '?'}){held}{when}.",
        arithmetic=arithmetic,
        next_action=(
            "Compare MemAvailable and the cgroup limit with what the server needs; lower host caches or the memory "
            "fraction (unified memory), or load a converted checkpoint."
        ),
        evidence=(*verdict.evidence, row.strip()[:300]),
    )


_APP = re.compile(r"^\s*(?P<pid>\d+),\s*(?P<mib>\d+)\s*MiB,?\s*(?P<name>.*)$", re.MULTILINE)


def _apps(text: str) -> list[tuple[int, int, str]]:
    return [(int(m["pid"]), int(m["mib"]), m["name"].strip()) for m in _APP.finditer(text)]


def _holders(verdict: Verdict, gpu_processes: str) -> Verdict:
    apps = _apps(gpu_processes)
    if not apps:
        return verdict
    total = sum(mib for _pid, mib, _name in apps)
    text = ", ".join(f"pid {pid} ({name or '?'}) {mib} MiB" for pid, mib, name in apps)
    code = "FAILED_BUT_HOLDING_GPU" if verdict.code == "FAILED_BUT_HOLDING_GPU" else verdict.code
    lead = "The start failed, and" if code == "FAILED_BUT_HOLDING_GPU" else verdict.sentence.rstrip(".") + "; and"
    return retell(
        verdict,
        {"pid": apps[0][0], "held_mib": total},
        code=code,
        sentence=f"{lead} processes still hold GPU memory: {text}.",
        arithmetic=(verdict.arithmetic + "; " if verdict.arithmetic else "")
        + " + ".join(str(mib) for _pid, mib, _name in apps)
        + f" = {total} MiB held",
        next_action="Stop the recorded process group of the failed start, and start again once the memory is back.",
        evidence=(*verdict.evidence, text),
    )


def _unbalanced(verdict: Verdict, host: HostEvidence) -> Verdict:
    sizes = [gpu.mem_total_mib for gpu in host.gpus if gpu.mem_total_mib is not None]
    apps = _apps(host.gpu_processes or "")
    if len(sizes) > 1 and min(sizes) < max(sizes) * 0.9:
        low, high = min(sizes) / 1024, max(sizes) / 1024
        return retell(
            verdict,
            {"smallest_gib": round(low, 1), "largest_gib": round(high, 1)},
            sentence=f"The GPUs differ in size ({low:.0f} and {high:.0f} GiB)"
            + ("." if apps else "; no other process was found."),
            arithmetic=f"{low:.1f} GiB < 0.9 x {high:.1f} GiB",
            next_action="Choose GPUs of one size, or a release without this check.",
        )
    if apps:
        text = ", ".join(f"pid {pid} ({name or '?'}) {mib} MiB" for pid, mib, name in apps)
        return retell(
            verdict,
            {"pid": apps[0][0], "held_mib": sum(mib for _p, mib, _n in apps)},
            sentence=f"The GPUs are of one size, and other processes occupy memory: {text}.",
            next_action="Stop them if they are yours (an orphan of an earlier start), then start again.",
        )
    return verdict
