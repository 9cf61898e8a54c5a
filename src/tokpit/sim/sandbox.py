"""The folder in which the simulated host lives: programs, a virtual environment with SGLang, a model, a home.

Layout of ROOT: `bin/` (first in PATH: nvidia-smi, python3), `venv/` (a real virtual environment whose package `sglang`
is the simulated engine), `models/` (shown as /models), `home/`, `logs/`, `ssh/` (keys), `proc/`, `gpu/`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

from tokpit.sim import machine, story

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the package tokpit, for the engine's interpreter."""
SHARDS = 15

_LAUNCH = """\
import sys

from tokpit.sim.engine import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""

_SERVE = """\
import sys

from tokpit.sim.engine import main

if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["version"]:
        print("sglang version: {version}")
        sys.exit(0)
    if words[:1] != ["serve"]:
        sys.exit("usage: sglang {{serve,version}} ...")
    sys.exit(main(words[1:], "sglang serve"))
"""

_SERVER_ARGS = """\
from tokpit.sim.args import add_flags


class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        add_flags(parser)
"""


def build(root: Path) -> None:
    """Make the folder's content, all but the clock."""
    for name in ("bin", "home", "logs", "gpu", "proc", "ssh", "models"):
        (root / name).mkdir(exist_ok=True)
    _programs(root)
    _venv(root / "venv")
    _model(root / "models" / story.MODEL_NAME)
    _proc(root)


def start_clock(root: Path, factor: float) -> None:
    """Let the simulated clock start now, at real UTC."""
    clock = {"factor": factor, "utc": time.time(), "monotonic": time.monotonic()}
    (root / "sim.json").write_text(json.dumps(clock), encoding="utf-8")


def environment(root: Path) -> dict[str, str]:
    """The environment of every session and of the engine found running."""
    standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "HOME": str(root / "home"),
        "PATH": f"{root / 'bin'}:{standard}:{os.environ.get('PATH', '')}",
        "SHELL": "/bin/sh",
        "USER": "sim",
        "LOGNAME": "sim",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TOKPIT_SIM_ROOT": str(root),
        # The process probe reads this folder in place of /proc: it lists the sandbox's servers and no others.
        "TOKPIT_PROC": str(root / "proc"),
    }


def view(root: Path, script: bytes) -> bytes:
    """A script with the names of files that are the simulated host's own replaced by where they are.

    These are memory and its limits, and the model folder where a script asks for it (`test -e`, `model=`). Scripts
    read them in many ways (cat, redirection), so the names are replaced, not the programs.
    """
    script = _ASKS_FOR_MODEL.sub(lambda m: m[1] + str(root).encode() + b"/models/", script)
    proc = str(root / "proc").encode()
    script = script.replace(b"/proc/meminfo", proc + b"/meminfo")
    script = script.replace(b"/proc/self/cgroup", proc + b"/no-cgroup")
    return script.replace(b"/sys/fs/cgroup", proc + b"/no-limits")


_ASKS_FOR_MODEL = re.compile(rb"(\bmodel=|\btest -\w )/models/")


def _script(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _programs(root: Path) -> None:
    smi = Path(__file__).with_name("smi.py")
    _script(root / "bin" / "nvidia-smi", f'#!/bin/sh\nexec "{sys.executable}" -IS "{smi}" "{root}" "$@"\n')
    _script(root / "bin" / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')


def _venv(venv: Path) -> None:
    real = Path(os.path.realpath(sys.executable))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    site = venv / "lib" / f"python{version}" / "site-packages"
    (venv / "bin").mkdir(parents=True)
    site.mkdir(parents=True)
    for name in ("python", "python3", f"python{version}"):
        (venv / "bin" / name).symlink_to(real)
    (venv / "pyvenv.cfg").write_text(
        f"home = {real.parent}\ninclude-system-site-packages = false\nversion = {version}\n", encoding="utf-8"
    )
    (site / "simulated.pth").write_text(f"{SOURCE}\n", encoding="utf-8")
    package = site / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{story.VERSION}"\n', encoding="utf-8")
    (package / "version.py").write_text(f'__version__ = "{story.VERSION}"\n', encoding="utf-8")
    (package / "launch_server.py").write_text(_LAUNCH, encoding="utf-8")
    (package / "srt" / "__init__.py").write_text("", encoding="utf-8")
    (package / "srt" / "server_args.py").write_text(_SERVER_ARGS, encoding="utf-8")
    info = site / f"sglang-{story.VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {story.VERSION}\n", encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
    _script(venv / "bin" / "sglang", f"#!{venv / 'bin' / 'python'}\n" + _SERVE.format(version=story.VERSION))


def _model(folder: Path) -> None:
    folder.mkdir()
    text = {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 64,
        "full_attention_interval": 4,
        "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(64)],
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mtp_num_hidden_layers": 1,
        "max_position_embeddings": story.CONTEXT_LEN,
        "mamba_ssm_dtype": "float32",
        "dtype": "bfloat16",
    }
    config = {
        "architectures": [story.MODEL_CLASS],
        "model_type": "qwen3_5",
        "dtype": "bfloat16",
        "text_config": text,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    size = int(story.WEIGHTS_GIB * 1024**3)
    index = {"metadata": {"total_size": size}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    for number in range(1, SHARDS + 1):
        # Sparse: they have the size of the weights and take no room.
        with (folder / f"model-{number:05d}-of-{SHARDS:05d}.safetensors").open("wb") as shard:
            shard.truncate(size // SHARDS)


def _proc(root: Path) -> None:
    for name in ("stat", "net", "sys", "uptime", "loadavg", "cpuinfo", "self", "version"):
        (root / "proc" / name).symlink_to(f"/proc/{name}")
    (root / "proc" / "no-cgroup").write_text("", encoding="utf-8")
    machine.write_meminfo(root)
