"""Failures between ranks: NCCL, rendezvous, tensor-parallel arithmetic. Texts are those of torch and NCCL."""

from __future__ import annotations

from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, retell, sig, whole


def not_divisible(verdict: Verdict, case: Case) -> Verdict:
    """The largest tp that divides what has to be divided."""
    count, tp = whole(verdict, "count"), whole(verdict, "tp")
    if count is None or tp is None or tp < 1 or count < 1:
        return verdict
    best = next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= tp and count % n == 0)
    what = str(verdict.figures.get("what", "a dimension of the model"))
    return retell(
        verdict,
        {"largest_tp": best},
        sentence=f"{what[:1].upper()}{what[1:]} ({count}) cannot be divided by tensor parallel size {tp}.",
        arithmetic=f"{count} % {tp} = {count % tp}; the largest power of two up to {tp} that divides it is {best}",
        next_action=f"Start with tensor parallel size {best}.",
        fixes=(Fix(label=f"tp {best}", settings={"tp": best}),),
    )


def more_ranks_than_gpus(verdict: Verdict, case: Case) -> Verdict:
    """Offers the number of GPUs that are there."""
    asked, there = whole(verdict, "asked"), whole(verdict, "there")
    if there is None or there < 1:
        return verdict
    return retell(
        verdict,
        sentence="{asked} ranks were asked for and {there} GPUs are visible.",
        arithmetic=f"asked {asked} > visible {there}",
        fixes=(Fix(label=f"tp {there}", settings={"tp": there}),),
    )


def internal_port(verdict: Verdict, case: Case) -> Verdict:
    """Reports the address in the message, never the HTTP port."""
    return retell(verdict, sentence="The internal port {port} ({addr}) is taken; the HTTP port is not the problem.")


_PORTS = (
    "Give each server its own internal ports (dist-init, RPC base port, MASTER_PORT), or start them one after another."
)
_NET = (
    "Name the right interface with NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, start with NCCL_DEBUG=INFO and "
    "check firewalls."
)

RANKS: tuple[Signature, ...] = (
    sig(
        "TP_NOT_DIVISIBLE",
        r"(?P<what>[Tt]otal number of attention heads|[Nn]umber of \S+ heads|[Vv]ocab(?:ulary)? size|\w*heads) "
        r"\((?P<count>\d+)\) must be divisible by (?:tensor parallel size|tp_size) \((?P<tp>\d+)\)",
        "The model cannot be split over this many ranks.",
        phase="args",
        refine=not_divisible,
    ),
    sig(
        "TP_NOT_DIVISIBLE",
        r"^\w*(?:Assertion|Value)Error: (?P<count>\d+) is not divisible by (?P<tp>\d+)",
        "The model cannot be split over this many ranks.",
        refine=not_divisible,
    ),
    sig(
        "QUANT_TP",
        r"not divisible by weight quantization block|not aligned with the quantized weight shape|size_per_partition "
        r"= (?P<count>\d+) is not divisible by (?:min_thread_[nk]|\w+) = (?P<by>\d+)|is not divisible by "
        r"(?:group_size|block_[nk])",
        "The quantised weights cannot be split over this many ranks.",
        "Use a smaller tensor parallel size, expert parallelism, or a checkpoint with another block size.",
    ),
    sig(
        "TP_EXCEEDS_GPUS",
        r"(?:[Ww]orld size|[Tt]ensor parallel size|number of required GPUs|tp_size|requested) "
        r"?\(?(?P<asked>\d+)\)?[^\n]{0,80}?(?:larger|greater|exceeds?|more)[^\n]{0,60}?(?:available|visible) "
        r"(?:GPUs|devices)[^\n\d]{0,30}\(?(?P<there>\d+)?",
        "More ranks than visible GPUs.",
        "Lower tp, or make more GPUs visible (CUDA_VISIBLE_DEVICES, `--gpus`).",
        refine=more_ranks_than_gpus,
    ),
    sig(
        "TP_EXCEEDS_GPUS",
        r"local rank (?P<rank>\d+) is out of bounds|number of required GPUs exceeds the total number of available "
        r"GPUs|not enough (?:GPUs|devices) (?:available|visible)",
        "More ranks than visible GPUs.",
        "Lower tp, or make more GPUs visible (CUDA_VISIBLE_DEVICES, `--gpus`).",
    ),
    sig(
        "SHM_TOO_SMALL",
        r"(?:creating|allocat\w+|extend\w*|attach\w*) (?:a )?(?:to )?shared memory segment\s+/dev/shm|failed to "
        r"extend /dev/shm/nccl|Error while creating shared memory",
        "NCCL could not get shared memory: /dev/shm is too small or full.",
        "Give the container more shared memory (`--shm-size 16g` or `--ipc=host`); see `df /dev/shm`.",
    ),
    sig(
        "NCCL_DUPLICATE_GPU",
        r"Duplicate GPU detected",
        "Two ranks use the same GPU.",
        "Give each rank its own GPU: check CUDA_VISIBLE_DEVICES and tp.",
    ),
    sig(
        "NCCL_INTERFACE",
        r"no socket interface found|failed to format addr, unknown family|Bootstrap : no |gloo.*(?:Unable to find "
        r"(?:address|interface)|unsupported (?:gloo )?device)",
        "NCCL or Gloo found no usable network interface.",
        _NET,
    ),
    sig(
        "NCCL_CONNECT",
        r"Connect to (?P<addr>\S+) failed ?: (?P<why>[^\n]+)|Net : Call to connect|socketStartConnect|connect to "
        r"\[?(?P<addr2>\S+?)\]? failed",
        "A rank could not connect to its peer {addr}: {why}.",
        _NET,
        rank=Rank.VAGUE,
    ),
    sig(
        "RENDEZVOUS_FAILED",
        r"DistNetworkError|DistStoreError|client socket has timed out after (?P<waited>\S+) while trying to connect "
        r"to \((?P<addr>[^)]*)\)|Timed out after \d+ seconds waiting for clients|Failed to recv, got 0 bytes",
        "The ranks did not find each other at the rendezvous address.",
        "Check that every node runs, with the same address, node count and its own node rank, and that the port is "
        "reachable.",
        phase="distributed",
        rank=Rank.VAGUE,
    ),
    sig(
        "P2P_UNAVAILABLE",
        r"peer access is not supported between|peer mapping resources exhausted|cudaErrorPeerAccess",
        "The GPUs cannot reach each other directly (P2P).",
        "Start with NCCL_P2P_DISABLE=1 and without custom all-reduce.",
    ),
    sig(
        "NCCL_TIMEOUT",
        r"[Ww]atchdog caught collective operation timeout(?:.*?Timeout\(ms\)=(?P<timeout_ms>\d+))?|Timeout at NCCL "
        r"work",
        "A collective operation timed out: one rank stopped answering.",
        "Find the rank that stopped first (its stack, its GPU, Xid lines); the rank that reports is the victim.",
        rank=Rank.CONSEQUENCE,
    ),
    sig(
        "NCCL_ERROR",
        r"NCCL [Ee]rror|NCCL failure|nccl(?:System|Internal|UnhandledCuda|Remote|InvalidUsage|InvalidArgument)Error|"
        r"DistBackendError|unhandled (?:system|cuda) error",
        "NCCL failed between the ranks.",
        "Start with NCCL_DEBUG=INFO: the first `NCCL WARN` line names the cause (interface, /dev/shm, P2P).",
        rank=Rank.CONSEQUENCE,
    ),
    sig(
        "KV_TRANSFER",
        r"KVTransferError|NIXL_ERR_\w+|nixl\w*(?:Error|Exception)|"
        r"[Mm]ooncake[^\n]{0,80}(?:[Ff]ail|not alive|[Ee]rror|timed? ?out)",
        "The KV transfer between prefill and decode servers failed.",
        "See whether the peer is alive and reachable (bootstrap port, RDMA devices, same release on both sides); its "
        "log has the cause if it died first.",
        rank=Rank.VAGUE,
    ),
    sig(
        "NCCL_ERROR",
        r"[Cc]onnection (?:closed|reset) by (?:local |remote )?peer",
        "A rank lost its peer.",
        "The peer died first: look for its error.",
        within=r"(?:gloo|nccl|tcp/pair|TCPStore|distributed)",
        rank=Rank.CONSEQUENCE,
    ),
)

INTERNAL_PORTS: tuple[Signature, ...] = (
    sig(
        "INTERNAL_PORT_IN_USE",
        r"Address already in use \(addr='(?P<addr>[^']*?:(?P<port>\d+))'\)",
        "",
        _PORTS,
        refine=internal_port,
    ),
    sig(
        "INTERNAL_PORT_IN_USE",
        r"(?P<addr>server socket has failed to (?:listen|bind)).*?port: (?P<port>\d+).{0,120}EADDRINUSE|"
        r"EADDRINUSE.{0,60}port[:=] ?(?P<port2>\d+)",
        "The internal port {port} (rendezvous) is taken; the HTTP port is not the problem.",
        _PORTS,
    ),
    sig(
        "INTERNAL_PORT_IN_USE",
        r"Port (?P<port>\d+) is (?:already )?in use.{0,60}(?:dist|nccl|rpc)|"
        r"[Pp]ort is already in use\. \w*port=(?P<port2>\d+)",
        "The internal port {port} is taken; the HTTP port is not the problem.",
        _PORTS,
        anywhere=True,
    ),
)
