"""A server: one inference server process tree on a host."""

from __future__ import annotations

import msgspec

from tokpit.domain.job import BatchJob
from tokpit.domain.settings import Settings


def server_id(host: str, pid: int, start_ticks: int) -> str:
    """The key of a server: host, pid and start time, so that a reused pid is another server."""
    return f"{host}/{pid}@{start_ticks}"


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the process table (and the server itself) says of a server. None: not known."""

    host: str
    engine: str
    """Registered engine name: `sglang`, `vllm`, `llamacpp`."""
    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: clock ticks after boot. With the pid it names a process for ever."""
    pgid: int
    sid: int = 0
    ppid: int = 0
    user: str = ""
    argv: tuple[str, ...] = ()
    cwd: str = ""
    port: int | None = None
    listen: str = "127.0.0.1"
    """Address to reach the port at, from the host itself."""
    model: str | None = None
    served_name: str | None = None
    version: str | None = None
    python: str | None = None
    settings: Settings = Settings()
    log_path: str | None = None
    started_at: float | None = None
    """UTC seconds, from boot time and start ticks."""
    children: tuple[int, ...] = ()
    rss_bytes: int | None = None
    container: str | None = None
    job: BatchJob | None = None
    """The batch job that it is (part of); `host` is then the login host, `pid` is 0, and `start_ticks` the job's id."""
    group: str = ""
    """See LaunchState: what the ranks of one server over several hosts have in common."""
    rank: int = 0
    ranks: tuple[str, ...] = ()
    launched_by_tokpit: bool = False

    @property
    def id(self) -> str:
        """See `server_id`."""
        return server_id(self.host, self.pid, self.start_ticks)

    @property
    def url(self) -> str | None:
        """Base URL as seen from the host itself, without a slash at the end; None where the port is unknown."""
        if self.port is None:
            return None
        return f"http://[{self.listen}]:{self.port}" if ":" in self.listen else f"http://{self.listen}:{self.port}"

    @property
    def label(self) -> str:
        """Short name for lists: host:port, or host/pid where the port is unknown."""
        if self.port:
            return f"{self.host}:{self.port}"
        return f"{self.host}/{self.pid}" if self.job is None else f"{self.host}/job {self.job.id}"
