"""A throwaway Slurm on loopback: munge, one controller, several nodes that are all this machine. Needs root.

`with Slurm.start(folder) as slurm:` gives a cluster whose commands need `slurm.env` only. `SLURM_MISSING` is the reason
to skip, or "". Nodes: n1, n2, ... in partition `short`; the only node of partition `broken` is down.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "srun", "scontrol")


_SMI = """\
#!/bin/sh
case "$*" in *--query-gpu*)
  figures="97, 71000, 81559, 612.5, 700, 61, 1755, 1980, 0x0"
  echo "0, GPU-$SLURMD_NODENAME, 00000000:01:00.0, [N/A], $figures, NVIDIA H100"
esac
"""


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _missing() -> str:
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    gone = [name for name in _PROGRAMS if _find(name) is None]
    return f"no {', '.join(gone)} on this machine (Debian: apt-get install slurm-wlm munge)" if gone else ""


SLURM_MISSING = _missing()


def _port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Slurm:
    """A running cluster."""

    folder: Path
    nodes: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """What its commands need."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, nodes: int = 4) -> Iterator[Slurm]:
        """Run one in `folder`, which every user must be able to reach."""
        folder.mkdir(parents=True, exist_ok=True)
        cluster = cls(folder, nodes)
        try:
            cluster.launch()
            yield cluster
        finally:
            cluster.stop()

    def launch(self) -> None:
        """Start every daemon and wait until the nodes are idle."""
        munge = self.folder / "munge"
        munge.mkdir(mode=0o700, exist_ok=True)
        key = munge / "key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        sock = self.folder / "munge.socket"
        self._run("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={sock}",
                  f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")  # fmt: skip
        self._until(sock.exists, "munged made no socket")
        host = socket.gethostname().partition(".")[0]
        ports = {n: _port() for n in range(1, self.nodes + 1)}
        rows = [
            "ClusterName=throwaway", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={_port()}",
            "AuthType=auth/munge", f"AuthInfo=socket={sock}", "CryptoType=crypto/munge", "SlurmUser=root",
            "SlurmdUser=root", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "ReturnToService=2", "SlurmctldTimeout=30",
            "SlurmdTimeout=20", "MinJobAge=300", "KillWait=5", "InactiveLimit=0", "SchedulerType=sched/backfill",
            "SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0",
            f"StateSaveLocation={self.folder}/state", f"SlurmdSpoolDir={self.folder}/spool.%n",
            f"SlurmctldPidFile={self.folder}/ctld.pid", f"SlurmdPidFile={self.folder}/d.%n.pid",
            f"SlurmctldLogFile={self.folder}/ctld.log", f"SlurmdLogFile={self.folder}/d.%n.log",
            *(f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=500 State=UNKNOWN"
              for n, port in ports.items()),
            f"TaskProlog={self._prolog()}",
            "NodeName=gone NodeHostname=nowhere NodeAddr=127.0.0.1 Port=1 CPUs=1 RealMemory=500 State=DOWN",
            f"PartitionName=short Nodes=n[1-{self.nodes}] Default=YES MaxTime=01:00:00 State=UP",
            "PartitionName=broken Nodes=gone MaxTime=01:00:00 State=UP",
        ]  # fmt: skip
        (self.folder / "slurm.conf").write_text("\n".join(rows) + "\n")
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "state").mkdir(exist_ok=True)
        self._run("slurmctld", "-D")
        for n in ports:
            (self.folder / f"spool.n{n}").mkdir(exist_ok=True)
            self._run("slurmd", "-D", "-N", f"n{n}")
        self._until(self._idle, "the nodes did not come up")

    def _prolog(self) -> Path:
        """What every task runs first: it has nodes find `nvidia-smi`, which the login host does not have."""
        smi = self.folder / "node-bin" / "nvidia-smi"
        smi.parent.mkdir()
        smi.write_text(_SMI)
        prolog = self.folder / "prolog"
        prolog.write_text(f'#!/bin/sh\necho "export PATH={smi.parent}:$PATH"\n')
        for program in (smi, prolog):
            program.chmod(0o755)
        return prolog

    def command(self, *words: str) -> str:
        """What a command of the cluster prints."""
        done = subprocess.run(words, env=os.environ | self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        """End every job and every daemon."""
        with contextlib.suppress(AssertionError, OSError, RuntimeError):
            self.command("scancel", "--user=root")
            self._until(lambda: not self.command("squeue", "-h").strip(), "jobs are left", 20)
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def _idle(self) -> bool:
        done = subprocess.run(
            ("sinfo", "-h", "-N", "-p", "short", "-o", "%t"), env=os.environ | self.env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout.split() == ["idle"] * self.nodes

    def _run(self, name: str, *words: str) -> None:
        program = _find(name)
        assert program is not None
        with (self.folder / "daemons.log").open("ab") as log:
            process = subprocess.Popen([program, *words], env=os.environ | self.env, stdout=log, stderr=log)
        self.processes.append(process)

    def _until(self, condition: Callable[[], object], what: str, patience_s: float = 60.0) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}:\n{(self.folder / 'daemons.log').read_text()[-3000:]}")
            time.sleep(0.1)
