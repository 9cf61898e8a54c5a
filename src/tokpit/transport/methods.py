"""Ways to start a server that outlives the connection: setsid, a systemd unit, a tmux session, a container.

Each is a piece of POSIX sh that runs between the same beginning and end (see `detached`): the beginning has set
`$run` (a script that becomes the server), `$log`, `$cwd` and `$TOKPIT_WHO`; the end waits until `$TOKPIT_WHO` says
pid, process group and start time. Sources: systemd-run(1), tmux(1), docker run's reference.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from tokpit.errors import UsageError
from tokpit.transport.base import quote

METHODS = ("setsid", "systemd", "tmux", "docker", "slurm")
"""The last one is a job of a queue: it is submitted, not started by a shell (`ops.slurm`)."""
LOG_MOUNT = "/tokpit-logs"
_FOLDER = "@FOLDER@"
LIMITS = ("--ulimit", "memlock=-1", "--ulimit", "stack=67108864")
"""What NCCL and pinned memory want of a container; left out where the host may not raise limits itself."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch in a container needs besides the command. `mounts`: folders, at the same path inside.

    `gpus`: `all`, `none`, `rocm`, or a list of devices as docker takes it (`"device=0,1"`).
    """

    image: str
    gpus: str = "all"
    mounts: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    """More words for `docker run`, word for word."""


def handle_name(engine: str, port: int, stamp: str) -> str:
    """A name for a unit, session or container: letters, digits and dashes only, so that all of them take it."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"tokpit-{engine or 'server'}-{port}-{stamp}").strip("-")


def systemd_argv(handle: str, *, user: bool, run: str) -> tuple[str, ...]:
    """`systemd-run` for a transient unit, collected when it ends; `run` is the script's path or a shell word for it."""
    return (
        "systemd-run",
        *(("--user",) if user else ()),
        "--quiet",
        "--collect",
        f"--unit={handle}",
        "--description=inference server started by tokpit",
        "--property=KillMode=mixed",
        "--property=TimeoutStopSec=120",
        "--property=LimitNOFILE=65536",
        "--",
        "/bin/sh",
        run,
    )


def docker_argv(
    handle: str, container: Container, env_names: Sequence[str], argv: Sequence[str], *, log_folder: str
) -> tuple[str, ...]:
    """`docker run` for a server that writes its output to a file of the host, named by TOKPIT_LOG in the container.

    Values of the environment are taken from the docker client's own, so that they are on no command line. The image is
    never pulled: that can take an hour, and is a step of its own. The container goes when it ends; its log stays.
    """
    gpus: tuple[str, ...] = ("--gpus", container.gpus)
    if container.gpus == "none":
        gpus = ()
    elif container.gpus == "rocm":
        gpus = ("--device=/dev/kfd", "--device=/dev/dri", "--group-add=video", "--security-opt=seccomp=unconfined")
    return (
        *("docker", "run", "--detach", "--rm", "--pull=never", "--name", handle, *gpus),
        *("--ipc=host", "--network=host", *LIMITS),
        *(word for name in (*env_names, "TOKPIT_LOG") for word in ("--env", name)),
        *("--volume", log_folder if log_folder == _FOLDER else f"{log_folder}:{LOG_MOUNT}"),
        *(word for path in container.mounts for word in ("--volume", f"{path}:{path}")),
        *container.args,
        *("--entrypoint", "sh", container.image),
        *("-c", 'log=$TOKPIT_LOG; unset TOKPIT_LOG; exec "$@" </dev/null >>"$log" 2>&1', "sh", *argv),
    )


# Runs as the leader of the new session: tells who it is, then becomes the server.
_WRAPPER = """\
who() { l=$(cat /proc/$$/stat) || return 1; set -- ${l##*) }; echo "$$ $3 ${20}"; }
who > "$TOKPIT_WHO.part" && mv "$TOKPIT_WHO.part" "$TOKPIT_WHO"
unset TOKPIT_WHO
exec "$@"
"""

_PYTHON = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nos.execvp(sys.argv[1], sys.argv[1:])"
_PERL = "use POSIX; exit 0 if fork; POSIX::setsid(); exec @ARGV;"

# `setsid -f` (util-linux) and the two interpreters fork by themselves. The last resort needs `&`, with which a shell
# without job control makes the server ignore SIGINT.
_SETSID = """\
{exports}
wrapper={wrapper}
if setsid -f true 2>/dev/null; then
  setsid -f sh -c "$wrapper" sh {argv} </dev/null >>"$log" 2>&1
elif command -v python3 >/dev/null 2>&1; then
  python3 -c {python} sh -c "$wrapper" sh {argv} </dev/null >>"$log" 2>&1
elif command -v perl >/dev/null 2>&1; then
  perl -e {perl} sh -c "$wrapper" sh {argv} </dev/null >>"$log" 2>&1
else
  setsid sh -c "$wrapper" sh {argv} </dev/null >>"$log" 2>&1 &
fi
"""

# The server's environment travels in a file that only the user can read and that the started shell removes first.
_RUN_FILE = """\
run=$states/.run-$$
( umask 077
{exports}
TOKPIT_LOG=$log TOKPIT_CWD=$PWD; export TOKPIT_LOG TOKPIT_CWD
{{ printf '%s\\n' 'rm -f -- "$0"'; export -p; printf '%s\\n' {tail}; }} > "$run" ) || exit 3
{starter}"""
_RUN_TAIL = """\
unset TMUX TMUX_PANE
cd -- "$TOKPIT_CWD" || exit 3
exec </dev/null >>"$TOKPIT_LOG" 2>&1 || exit 3
unset TOKPIT_LOG TOKPIT_CWD
"""

_SYSTEMD = """\
export XDG_RUNTIME_DIR=${{XDG_RUNTIME_DIR:-/run/user/$(id -u)}}
command -v systemd-run >/dev/null 2>&1 || {{ echo "systemd-run is not on this host" >&2; exit 4; }}
if [ "$(id -u)" = 0 ]; then
  {system} || {{ rm -f -- "$run"; exit 4; }}
else
  {user} || {{ rm -f -- "$run"; exit 4; }}
fi
"""

# The server's output goes to the log as with every method; a second window shows it and ends with the server.
_TMUX = """\
command -v tmux >/dev/null 2>&1 || {{ echo "tmux is not on this host" >&2; exit 4; }}
tmux new-session -d -s {handle} -n server /bin/sh "$run" || {{ rm -f -- "$run"; exit 4; }}
"""
_TMUX_AFTER = """\
tmux new-window -d -t {handle}: -n log tail --pid="$pid" -n +1 -F "$log" 2>/dev/null || :
"""

_DOCKER = """\
command -v docker >/dev/null 2>&1 || {{ echo "docker is not on this host" >&2; exit 4; }}
folder=$(dirname -- "$log")
box() {{ ( {exports}
  TOKPIT_LOG={mount}/$(basename -- "$log"); export TOKPIT_LOG
  {command} ); }}
said=$states/.said-$$
id=$(box {limits} 2>"$said") || {{
  why=$(cat "$said")
  rm -f -- "$said"
  case $why in
    *[rR][lL][iI][mM][iI][tT]*|*ulimit*)
      # A host that is itself confined may not raise limits; the server then runs with those that the runtime gives.
      docker rm -f {handle} >/dev/null 2>&1
      id=$(box) || exit 4
      echo "the container's limits (memlock, stack) could not be raised here: $(echo "$why" | tail -n 1)" >>"$log" ;;
    *) echo "$why" >&2; exit 4 ;;
  esac
}}
rm -f -- "$said"
p=$(docker inspect -f '{{{{.State.Pid}}}}' "$id" 2>/dev/null || echo 0)
if [ "$p" -gt 0 ] && l=$(cat "/proc/$p/stat"); then
  set -- ${{l##*) }}
  echo "$p $3 ${{20}}" > "$TOKPIT_WHO"
else
  echo "the container ended at once: $(tail -n 1 "$log")" >&2; exit 4
fi
"""


def _starter(
    method: str,
    handle: str,
    *,
    argv: Sequence[str] = (),
    exports: str = "",
    env_names: Sequence[str] = (),
    container: Container | None = None,
) -> tuple[str, str]:
    """Shell lines that start `$run` by this method, and lines to run once it is known who it is.

    Raises UsageError for an unknown method, and for a container without an image.
    """
    if method == "systemd":
        words = {user: _with_run(systemd_argv(handle, user=user, run="@RUN@")) for user in (True, False)}
        return _SYSTEMD.format(system=words[False], user=words[True]), ""
    if method == "tmux":
        return _TMUX.format(handle=handle), _TMUX_AFTER.format(handle=handle)
    if method == "docker":
        if container is None or not container.image:
            raise UsageError("a launch in a container needs an image", hint="name it with --image")
        line = quote(docker_argv(handle, container, env_names, argv, log_folder=_FOLDER))
        # The log's folder is known to the shell only.
        command = line.replace(f"--volume {_FOLDER} ", f'--volume "$folder":{LOG_MOUNT} ', 1)
        command = command.replace(quote(LIMITS), '"$@"', 1)
        return _DOCKER.format(
            exports=exports, command=command, mount=LOG_MOUNT, limits=quote(LIMITS), handle=quote([handle])
        ), ""
    raise UsageError(f"unknown launch method {method!r}", hint=f"known: {', '.join(METHODS)}")


def _with_run(argv: Sequence[str]) -> str:
    return quote(argv).replace("@RUN@", '"$run"')


def start_lines(
    argv: Sequence[str], env: Mapping[str, str], method: str, handle: str, container: Container | None
) -> tuple[str, str]:
    """Shell lines that start the server, and those that follow once it is known who it is.

    Raises UsageError for an unknown method and where it lacks a name or an image.
    """
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())
    if method == "setsid":
        setsid = _SETSID.format(
            exports=exports,
            wrapper=shlex.quote(_WRAPPER),
            argv=quote(argv),
            python=shlex.quote(_PYTHON),
            perl=shlex.quote(_PERL),
        )
        return setsid, ""
    if not handle:
        raise UsageError(f"a launch by {method} needs a name for it")
    start, after = _starter(method, handle, argv=argv, exports=exports, env_names=sorted(env), container=container)
    if method != "docker":
        # tmux ends a pane whose terminal nobody holds open any more.
        tail = ("exec 9>&1\n" if method == "tmux" else "") + _RUN_TAIL + _WRAPPER.replace('"$@"', quote(argv))
        start = _RUN_FILE.format(exports=exports, tail=shlex.quote(tail), starter=start)
    return start, after
