"""Failures that come from the operating system: memory, disk, shared memory, ports, permissions, limits, crashes."""

from __future__ import annotations

from tokpit.domain.verdict import Verdict
from tokpit.engines.verdictkit.exits import by_status
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, retell, sig, whole

_OOM = (
    "Compare MemAvailable and the cgroup limit with what the server needs; lower host caches (hicache, KV "
    "offload) or pick a smaller checkpoint."
)


def oom_killed(verdict: Verdict, case: Case) -> Verdict:
    """Adds how much memory the victim held."""
    rss = whole(verdict, "rss_kb")
    size = f", which held {rss / 1048576:.1f} GiB" if rss is not None else ""
    name = f" ({verdict.figures['name']})" if "name" in verdict.figures else ""
    return retell(
        verdict,
        sentence=f"The kernel's OOM killer ended pid {{pid}}{name}{size}: the host (or its cgroup) ran out of memory.",
        arithmetic=f"anon-rss {rss} kB / 1048576 = {rss / 1048576:.1f} GiB" if rss is not None else "",
    )


def port_in_use(verdict: Verdict, case: Case) -> Verdict:
    """The port from the message, else from the settings or the argument echo."""
    port = verdict.figures.get("port")
    if port is None:
        known = case.settings.port if case.settings else None
        port = known if known is not None else case.number("port")
    if port is None:
        return verdict
    return retell(
        verdict,
        {"port": port},
        sentence="Port {port} is already in use: the server cannot listen, whatever it printed about being ready.",
        next_action="See who listens (`ss -ltnp 'sport = :{port}'`) and since when; stop it if it is yours, or take "
        "another port. If nobody listens, wait a minute (TIME-WAIT).",
    )


def by_keeper(verdict: Verdict, case: Case) -> Verdict | None:
    """What systemd (a signal's number) or docker compose (128 and that) says of the main process's end."""
    number = whole(verdict, "status")
    code = whole(verdict, "code")
    status = -number if number is not None else code
    return None if status is None else by_status(retell(verdict, {"status": status}), case)


def port_denied(verdict: Verdict, case: Case) -> Verdict:
    """Names the port where the message does."""
    if "port" not in verdict.figures:
        return verdict
    return retell(verdict, sentence="The server may not listen on port {port}: ports below 1024 are reserved.")


HTTP_PORT: tuple[Signature, ...] = (
    sig(
        "PORT_PERMISSION",
        r"\[Errno 13\][^\n]*?\('[^']*', (?P<port>\d+)[^\n]*[Pp]ermission denied|"
        r"\[Errno 13\][^\n]*(?:bind|address)[^\n]*[Pp]ermission denied",
        "The server may not listen on its port: ports below 1024 are reserved.",
        "Take a port above 1024.",
        survives=True,
        refine=port_denied,
    ),
    sig(
        "LISTEN_ADDRESS",
        r"\[Errno 99\][^\n]*?\('(?P<address>[^']*)', (?P<port>\d+)[^\n]*[Cc]annot assign requested address|"
        r"\[Errno 99\][^\n]*[Cc]annot assign requested address",
        "The address to listen on does not belong to this host.",
        "Listen on 0.0.0.0, 127.0.0.1 or an address of this host.",
        survives=True,
    ),
    sig(
        "PORT_IN_USE",
        r"\[Errno (?:98|48)\][^\n]*?(?:\('(?P<address>[^']*)', (?P<port>\d+)(?:, [^)]*)?\))?:? ?[Aa]ddress already "
        r"in use(?! \(addr=)",
        "The port is already in use.",
        "See who listens (`ss -ltnp`); if nobody does, wait a minute (TIME-WAIT) or take another port.",
        phase="http",
        refine=port_in_use,
        survives=True,
    ),
)

_JOB = r"\*\*\* (?:JOB|STEP) (?P<job>\d+)\S* ON \S+ CANCELLED AT \S+"
"""Source: what slurmstepd prints at the end of a job or step; seen from 22.05."""

SYSTEM: tuple[Signature, ...] = (
    sig(
        "HOST_OOM_KILLED",
        r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d+)(?: "
        r"\((?P<name>[^)]*)\))?(?:.*?anon-rss:(?P<rss_kb>\d+)kB)?",
        "",
        _OOM,
        refine=oom_killed,
        survives=True,
    ),
    sig(
        "HOST_OOM_KILLED",
        r"killed by the OOM killer|Failed with result 'oom-kill'|\bOOMKilled\b(?!\W{1,3}false)",
        "The kernel's OOM killer ended the server: its host, container or unit ran out of memory.",
        _OOM,
        anywhere=True,
        survives=True,
    ),
    sig(
        "HOST_OOM_KILLED",
        r"oom-kill:.*?(?:task=(?P<name>[^,]*),)?pid=(?P<pid>\d+)",
        "The kernel's OOM killer ended pid {pid} ({name}).",
        _OOM,
        survives=True,
    ),
    sig(
        "HOST_MEM",
        r"MemoryError|std::bad_alloc|\[Errno 12\]|Cannot allocate memory|DefaultCPUAllocator: (?:can't|not enough) "
        r".*?(?:allocate (?P<bytes>\d+) bytes)?|paging file is too small",
        "The host has no memory left for an allocation.",
        _OOM,
    ),
    sig(
        "SHM_TOO_SMALL",
        r"Insufficient space in (?P<where>/\S+?)[ :]|unable to (?:open|allocate|write|mmap)[^\n]*(?:shared memory|"
        r"/torch_)|insufficient shared memory|No space left on device: '?/dev/shm|/dev/shm[^\n]*No space left|"
        r"\[Errno 28\] No space left on device: '/(?:psm_|dev/shm)|Bus error|\[Errno 14\] Bad address",
        "Shared memory (/dev/shm) is too small or full.",
        "Give the container more (`--shm-size`, `--ipc=host`), and remove what dead servers left in /dev/shm.",
    ),
    sig(
        "DISK_FULL",
        r"\[Errno 28\]|No space left on device|[Dd]isk quota exceeded|\[Errno 122\]|Not enough free disk space|os "
        r"error 28",
        "The disk (or the quota) is full.",
        "See `df -h` for the model cache, /tmp and the log folder; move HF_HOME, TMPDIR or the caches of triton and "
        "torch.",
    ),
    sig(
        "READ_ONLY",
        r"\[Errno 30\][^\n]*(?:: '(?P<path>[^']*)')?|Read-only file system",
        "The server wrote to a read-only file system {path}.",
        "Point HF_HOME, TMPDIR and the kernel caches to a writable folder.",
    ),
    sig(
        "PERMISSION_DENIED",
        r"PermissionError: \[Errno (?:13|1)\][^\n:]*(?:: '(?P<path>[^']*)')?|(?:^|\n)[^\n]*: Permission denied$",
        "The launch user may not use {path}.",
        "Check owner and mode of the path as the launch user, and how it is mounted in the container.",
    ),
    sig(
        "TOO_MANY_FILES",
        r"^\w*Error: \[Errno 24\] Too many open files|^OSError: \[Errno 24\]",
        "The limit of open files is reached.",
        "Raise it before the launch: `ulimit -n 65536`, LimitNOFILE= in a unit.",
    ),
    sig(
        "PROCESS_LIMIT",
        r"can't start new thread|Thread creation failed|pthread_create failed|Resource temporarily unavailable|"
        r"\[Errno 11\]",
        "The limit of processes or threads is reached.",
        "Raise it (`ulimit -u`, TasksMax=, the container's pids limit), or set OMP_NUM_THREADS=1.",
    ),
    sig(
        "MEMLOCK_LIMIT",
        r"cudaHostRegister|cudaHostAlloc|[Cc]annot lock memory|ibv_reg_mr|mlock",
        "Memory could not be pinned.",
        "Raise the limit (`ulimit -l unlimited`, LimitMEMLOCK=infinity) and check free host memory.",
        rank=Rank.VAGUE,
    ),
    sig(
        "NAME_RESOLUTION",
        r"gaierror: \[Errno -\d\]|Name or service not known|Temporary failure in name resolution",
        "A host name could not be resolved.",
        "Check the name (dist-init or master address, hub) and DNS on the host.",
        rank=Rank.VAGUE,
    ),
    sig(
        "SEGFAULT",
        r"Segmentation fault|SIGSEGV|Segfault encountered",
        "The server crashed with a segmentation fault: native code, not Python.",
        "Check that driver, CUDA, torch and kernel packages fit together; the stack below it names the library.",
        rank=Rank.VAGUE,
    ),
    sig(
        "WRONG_ARCHITECTURE",
        r"[Ee]xec format error|cannot execute binary file|does not match the (?:detected )?host platform.{0,80}failed",
        "The program or image was built for another processor architecture than this host's.",
        "Use an image or build for this host (`uname -m`; `docker pull --platform`).",
        phase="args",
        anywhere=True,
    ),
    sig(
        "PROCESS_DIED",
        r"Main process exited, code=(?:killed|dumped), status=(?P<status>\d+)/(?P<signal>\w+)|"
        r"^\S+ exited with code (?P<code>\d{3})$",
        "The server's main process ended.",
        "Look above for its first error, and in `dmesg` for its pid.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=by_keeper,
    ),
    sig(
        "JOB_TIME_LIMIT",
        _JOB + r" DUE TO TIME LIMIT",
        "The time limit of batch job {job} was reached.",
        "Launch it again; ask for more time where the partition gives it (--time).",
        anywhere=True,
        rank=Rank.DEATH,
    ),
    sig(
        "JOB_CANCELLED",
        _JOB,
        "Batch job {job} was ended by the queue: cancelled, preempted, or its node failed.",
        "Ask the queue who or what ended it: scontrol show job {job}.",
        anywhere=True,
        rank=Rank.DEATH,
    ),
    sig(
        "HOST_OOM_KILLED",
        r"slurmstepd\S*: error: (?:Detected \d+ oom[-_]kill event|Exceeded (?:job|step) memory limit)",
        "The batch job used more host memory than it had asked for, and was ended for it.",
        "Ask the queue for more (--sbatch-arg --mem=...), or lower what the server keeps in host memory.",
        anywhere=True,
        rank=Rank.DEATH,
    ),
    sig(
        "ILLEGAL_INSTRUCTION",
        r"Illegal instruction|SIGILL",
        "The server used an instruction that this CPU lacks.",
        "Install a build for this CPU (without AVX-512 or AMX).",
    ),
    sig(
        "HOST_OOM_KILLED",
        r"^Killed$",
        "The server was killed (SIGKILL): nearly always the kernel's OOM killer.",
        _OOM,
        rank=Rank.DEATH,
    ),
    sig(
        "ABORTED",
        r"^(?:Aborted\b|terminate called|Fatal Python error: Aborted)",
        "Native code aborted the server.",
        "Read the lines above the abort.",
        rank=Rank.DEATH,
    ),
)


def died(pattern: str, sentence: str) -> Signature:
    """A line that says which process died with which status; groups `status` and maybe `who`."""
    return sig(
        "PROCESS_DIED",
        pattern,
        sentence,
        "Look above for its first error, and in `dmesg` for its pid.",
        anywhere=True,
        rank=Rank.DEATH,
        refine=by_status,
    )
