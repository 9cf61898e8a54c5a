"""A host examined for launches: shell, clock, Python, limits, and how a login's environment differs from ours."""

from __future__ import annotations

import re

import msgspec

from tokpit.domain.text import sanitize
from tokpit.probes.sections import mark, sections

_ENV_OF_INTEREST = re.compile(
    r"^(?:PATH|LD_LIBRARY_PATH|CUDA_\w+|HF_\w+|HUGGING\w+|VIRTUAL_ENV|CONDA_PREFIX|NCCL_\w+|"
    r"TORCH\w*|TRITON_\w+|TRANSFORMERS_\w+|\w+_PROXY|\w+_proxy)$"
)

_LISTS = frozenset({"PATH", "LD_LIBRARY_PATH"})

CLOCK = "date +%s.%N 2>/dev/null || date +%s"
"""A command whose answer `parse_clock` reads."""

_SCRIPT = r"""
%(who)s
id -un; uname -sm; echo "${SHELL:-}"; sed -n 's/^PRETTY_NAME="\{0,1\}\([^"]*\).*/\1/p' /etc/os-release 2>/dev/null
%(python)s
command -v python3 && python3 -I -S -c 'import sys; print(sys.version.split()[0])'
%(limits)s
ulimit -n; ulimit -l; ulimit -u 2>/dev/null
%(driver)s
PATH="$PATH:/usr/bin:/usr/local/nvidia/bin"
nvidia-smi --query-gpu=driver_version,name,memory.total --format=csv,noheader 2>&1 | head -n 32
%(home)s
d=${XDG_STATE_HOME:-$HOME/.local/state}
while [ ! -e "$d" ]; do d=$(dirname -- "$d"); done
[ -w "$d" ] && echo writable || echo "$d"
%(env)s
env
%(login)s
if [ -x "${SHELL:-}" ]; then
  case $SHELL in *csh) how=-ic ;; *) how=-lic ;; esac
  timeout 5 "$SHELL" "$how" 'echo @@login; env; echo @@end' </dev/null 2>/dev/null
fi
%(end)s
"""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. None or empty: the host does not tell."""

    user: str = ""
    system: str = ""
    shell: str = ""
    os: str = ""
    python: str = ""
    python_path: str = ""
    open_files: int | None = None
    """None where it is unlimited or unknown."""
    locked_memory_kib: int | None = None
    driver: str = ""
    gpus: tuple[str, ...] = ()
    gpu_trouble: str = ""
    unwritable: str = ""
    """The folder below which state would go and cannot."""
    env: dict[str, str] = {}
    login_env: dict[str, str] | None = None
    """The environment of an interactive login shell; None where it did not answer."""

    env_prefixes: tuple[str, ...] = ()
    """How the variables begin that only engines read."""

    @property
    def lost(self) -> dict[str, tuple[str | None, str | None]]:
        """Variables of interest that differ: name to (here, in the login shell)."""
        if self.login_env is None:
            return {}
        names = sorted(
            name
            for name in {*self.env, *self.login_env}
            if _ENV_OF_INTEREST.match(name) or name.startswith(self.env_prefixes)
        )
        pairs = {name: (self.env.get(name), self.login_env.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if not _same(name, *pair)}

    def missing_entries(self, name: str) -> tuple[str, ...]:
        """Entries of a path-like variable that only the login shell has."""
        there = ((self.login_env or {}).get(name) or "").split(":")
        here = set((self.env.get(name) or "").split(":"))
        return tuple(dict.fromkeys(entry for entry in there if entry and entry not in here))


def _same(name: str, here: str | None, there: str | None) -> bool:
    if name in _LISTS and here is not None and there is not None:
        return not set(there.split(":")) - set(here.split(":"))  # order and repetitions are nobody's concern
    return here == there


def checkup_script() -> str:
    """POSIX sh that prints what `parse_checkup` reads."""
    names = ("who", "python", "limits", "driver", "home", "env", "login", "end")
    return _SCRIPT % {name: mark(name) for name in names}


def parse_checkup(output: str, env_prefixes: tuple[str, ...] = ()) -> Checkup:
    """The facts, as text that is safe to show. `env_prefixes`: how the variables begin that only engines read."""
    parts = {name: [sanitize(line) for line in text.splitlines()] for name, text in sections(output).items()}
    who = [*parts.get("who", []), "", "", "", ""]
    python = [*parts.get("python", []), "", ""]
    limits = [*parts.get("limits", []), "", ""]
    rows = [line.rsplit(",", 2) for line in parts.get("driver", [])]
    good = [row for row in rows if len(row) == 3 and re.match(r"\d+\.", row[0])]
    said = parts.get("driver", [])
    login = "\n".join(parts.get("login", []))
    inner = re.search(r"@@login\n(.*?)\n?@@end", login, re.DOTALL)
    home = (parts.get("home") or ["writable"])[0]
    return Checkup(
        user=who[0],
        system=who[1],
        shell=who[2],
        os=who[3],
        python_path=python[0] if python[1] else "",
        python=python[1],
        open_files=int(limits[0]) if limits[0].isdecimal() else None,
        locked_memory_kib=int(limits[1]) if limits[1].isdecimal() else None,
        driver=good[0][0].strip() if good else "",
        gpus=tuple(f"{row[1].strip()}, {row[2].strip()}" for row in good),
        gpu_trouble="" if good or not said or "not found" in said[0] else said[0],
        unwritable="" if home == "writable" else home,
        env=_env("\n".join(parts.get("env", []))),
        login_env=_env(inner[1]) if inner else None,
        env_prefixes=env_prefixes,
    )


def parse_clock(output: str) -> float | None:
    """UTC seconds on the host; None where it does not tell."""
    found = re.match(r"\d+(\.\d+)?", output.strip())
    return float(found[0]) if found else None


def _env(text: str) -> dict[str, str]:
    found = (line.partition("=") for line in text.splitlines())
    return {name: value for name, equals, value in found if equals and re.fullmatch(r"[A-Za-z_]\w*", name)}
