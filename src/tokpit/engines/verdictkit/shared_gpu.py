"""Failures of GPU, driver and CUDA that every engine meets (texts of torch, the CUDA runtime, ggml and NVML)."""

from __future__ import annotations

import re

from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, real, retell, sig, whole

_MIB = {"B": 1 / 1048576, "bytes": 1 / 1048576, "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
_SIZE = r"(?P<{0}>[\d.]+) (?P<{0}_unit>bytes|B|KiB|MiB|GiB)"

_OOM_CODES = {
    "capture": ("OOM_GRAPH_CAPTURE", "during graph capture"),
    "load": ("OOM_LOADING", "while the weights were loaded"),
    "memory": ("OOM_POOLS", "while the memory pools were set up"),
    "ready": ("OOM_SERVING", "while serving"),
    "http": ("OOM_SERVING", "on the first request"),
}


def _mib(verdict: Verdict, name: str) -> float | None:
    value, unit = real(verdict, name), verdict.figures.get(f"{name}_unit")
    return value * _MIB[str(unit)] if value is not None and unit in _MIB else None


def out_of_memory(verdict: Verdict, case: Case) -> Verdict:
    """Device out of memory: code by phase, shortfall in MiB, other processes on the GPU first."""
    code, when = _OOM_CODES.get(verdict.phase, ("OOM_GPU", "at the start"))
    text = case.block.tight if case.block else ""
    if "Capture cuda graph failed" in text:
        verdict = retell(verdict, phase="capture")
        code, when = _OOM_CODES["capture"]
    hicache = bool(case.settings and case.settings.hicache) or case.fact("enable_hierarchical_cache") == "True"
    if (hicache or case.seen_before("hierarchical (?:KV|Mamba)")) and verdict.phase not in {"load", "capture"}:
        code, when = "OOM_HICACHE_HEADROOM", "with the host cache on"
    figures: dict[str, float | str] = {}
    arithmetic = ""
    asked, free = _mib(verdict, "asked"), _mib(verdict, "free")
    if asked is not None:
        figures["asked_mib"] = round(asked, 2)
    if free is not None:
        figures["free_mib"] = round(free, 2)
    short = f"{asked:.2f} MiB could not be allocated" if asked is not None else "an allocation failed"
    if asked is not None and free is not None:
        missing = round(asked - free, 2)
        figures["shortfall_mib"] = missing
        arithmetic = f"asked {asked:.2f} MiB - free {free:.2f} MiB = {missing:.2f} MiB short"
        short = f"short by {missing:.2f} MiB" if missing > 0 else f"{free:.0f} MiB free but in pieces: fragmentation"
    gpu = f" on GPU {verdict.figures['gpu']}" if "gpu" in verdict.figures else ""
    others = re.findall(r"Process (\d+) has ([\d.]+) (MiB|GiB) memory in use", text)
    fraction = (case.settings.mem_fraction if case.settings else None) or case.number("mem_fraction_static")
    if fraction is not None:
        figures["mem_fraction"] = fraction
    fixes = tuple(
        Fix(label=f"memory fraction {value}", settings={"mem_fraction": value})
        for value in ([round(fraction - (0.02 if code == "OOM_GRAPH_CAPTURE" else 0.04), 2)] if fraction else [])
    )
    action = {
        "OOM_HICACHE_HEADROOM": "The transfer buffers between host and device need GPU memory of their own: lower "
        "the memory fraction by 0.03 to 0.05, or raise the page size; the KV pool is not at fault.",
        "OOM_GRAPH_CAPTURE": "Lower the memory fraction by 0.01 to 0.02, or capture smaller batch sizes.",
        "OOM_LOADING": "The weights do not fit: more GPUs (tp), a quantised checkpoint, or free the GPU first.",
        "OOM_SERVING": "Lower the memory fraction by 0.02 to 0.05, the prefill chunk, or the number of running "
        "requests.",
    }.get(code, "Lower the memory fraction by 0.03 to 0.05, or free GPU memory.")
    if others:
        held = ", ".join(f"pid {pid}: {size} {unit}" for pid, size, unit in others)
        figures["other_processes"] = held
        action = f"Other processes hold memory on this GPU ({held}): look at them first. {action}"
    return retell(
        verdict,
        figures,
        code=code,
        sentence=f"GPU out of memory {when}{gpu}: {short}.",
        arithmetic=arithmetic,
        next_action=action,
        fixes=fixes,
    )


def driver_too_old(verdict: Verdict, case: Case) -> Verdict:
    """Decodes 12080 to 12.8."""
    found = whole(verdict, "found")
    if found is None:
        return verdict
    version = f"{found // 1000}.{found % 1000 // 10}"
    return retell(
        verdict,
        {"driver_cuda": version},
        sentence=f"The driver is too old: it supports CUDA {version}, and this build needs a newer one.",
        arithmetic=f"{found} = CUDA {found // 1000}.{found % 1000 // 10} ({found} // 1000, {found} % 1000 // 10)",
    )


def arch(verdict: Verdict, case: Case) -> Verdict:
    """Names the architecture, also where a wrapper has cut its name in two."""
    text = case.block.tight if case.block else ""
    found = re.search(r"(?:sm|compute)_(\d{2,3})", text)
    if found is None:
        return verdict
    return retell(
        verdict,
        {"arch": f"sm_{found[1]}"},
        sentence=(
            "The kernel compiler or binary does not support this GPU ({arch}); memory advice around it does not apply."
        ),
    )


_NEW_DRIVER = (
    "Upgrade the driver, or use a build for the CUDA version that `nvidia-smi` shows; a restart alone won't help."
)
_NEW_BUILD = (
    "Upgrade torch, triton and CUDA (image or wheels) to a release that knows this GPU; don't lower memory settings."
)
_RESET = (
    "Take the GPU out of service: read `dmesg` for Xid lines, then reset it or reboot the host before another start."
)

GPU: tuple[Signature, ...] = (
    sig(
        "KERNEL_ARCH_UNSUPPORTED",
        r"ptxas fatal|[Vv]alue '?sm_\d+\w*\n?\w*'? is not defined for option|no kernel image is available|"
        r"Unsupported gpu architecture|(?:CUDA|HIP) error: invalid device function|cudaErrorNoKernelImageForDevice|"
        r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices|device kernel image is invalid|"
        r"is not supported on this architecture|FlashAttention only supports Ampere|LLVM ERROR: Cannot select|"
        r"(?:sm_?\d+|compute capability \d+\.\d).{0,40}\b(?:is|are) not supported",
        "The kernel compiler or binary does not support this GPU.",
        _NEW_BUILD,
        refine=arch,
    ),
    sig(
        "KERNEL_ARCH_UNSUPPORTED",
        r"Illegal seek for GPU arch ?: ?(?P<arch>gfx\w+)",
        "The ROCm libraries hold no kernels for this GPU ({arch}).",
        "Use a build for it, or (at your own risk) HSA_OVERRIDE_GFX_VERSION with a near relative.",
        anywhere=True,
    ),
    sig(
        "PTX_TOOLCHAIN",
        r"PTX was compiled with an unsupported toolchain|cudaErrorUnsupportedPtxVersion|UNSUPPORTED_PTX_VERSION",
        "The driver is older than the toolchain that built the kernels: it fails when the first kernel runs, not at "
        "load.",
        _NEW_DRIVER,
    ),
    sig(
        "DRIVER_TOO_OLD",
        r"NVIDIA driver on your system is too old \(found version (?P<found>\d+)\)",
        "The driver is too old for this build.",
        _NEW_DRIVER,
        refine=driver_too_old,
    ),
    sig(
        "DRIVER_TOO_OLD",
        r"driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver|"
        r"unsatisfied condition: cuda ?>= ?(?P<needs>[\d.]+)",
        "The driver is too old for the CUDA runtime of this build.",
        _NEW_DRIVER,
    ),
    sig(
        "DRIVER_MISMATCH",
        r"Driver/library version mismatch|NVMLError_LibRmVersionMismatch|forward compatibility was attempted on non "
        r"supported HW|unsupported display driver ?/ ?cuda driver combination|cudaErrorSystemDriverMismatch",
        "Kernel module and user library of the driver differ: the driver was upgraded under a running system.",
        "Reboot or reload the module in a maintenance window; servers that still run keep running until then.",
    ),
    sig(
        "GPU_LOST",
        r"GPU is lost|GPU requires reset|fallen off the bus|NVMLError_GpuIsLost|Unable to determine the device handle",
        "A GPU is lost (fell off the bus).",
        _RESET,
    ),
    sig(
        "GPU_ECC",
        r"uncorrectable (?:NVLink )?(?:ECC )?error|cudaErrorECCUncorrectable",
        "A GPU has an uncorrectable memory error (ECC).",
        _RESET,
    ),
    sig(
        "FABRIC_MANAGER",
        r"system not yet initialized|cudaErrorSystemNotReady|Error 802",
        "The NVSwitch fabric is not up (CUDA error 802).",
        "Start nvidia-fabricmanager of the driver's own version on the host.",
    ),
    sig(
        "GPU_EXCLUSIVE",
        r"CUDA-capable device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable",
        "The GPU is busy or in exclusive mode: another process owns it.",
        "List the processes on the GPU, and `nvidia-smi -q -d COMPUTE` for its mode.",
    ),
    sig(
        "TP_EXCEEDS_GPUS",
        r"CUDA error: invalid device ordinal|cudaErrorInvalidDevice\b",
        "A rank asked for a GPU that does not exist: more ranks than visible GPUs.",
        "Compare tp x pp (x dp) with the GPUs of `nvidia-smi -L` and with CUDA_VISIBLE_DEVICES.",
    ),
    sig(
        "NO_GPU",
        r"No CUDA GPUs are available|Found no NVIDIA driver on your system|NVMLError_(?:LibraryNotFound|"
        r"DriverNotLoaded|Uninitialized)|"
        r"no CUDA-capable device is detected|Torch not compiled with CUDA enabled|couldn't communicate with the "
        r"NVIDIA driver|"
        r"could not select device driver|Failed to infer device type|No supported (?:GPU|accelerator|platform)|"
        r"libcuda\.so\.1: cannot open|"
        r"CUDA unknown error|cudaErrorNoDevice|Failed to get device capability|No HIP GPUs are available|"
        r"hipErrorNoDevice|no ROCm-capable device|node has no GPU available|engine cannot start without GPU|"
        r"nvidia-container-cli: (?:initialization|detection) error|unresolvable CDI devices",
        "No usable GPU is visible to the server.",
        "Run `nvidia-smi -L` as the launch user and in the same container; check CUDA_VISIBLE_DEVICES and `--gpus`.",
    ),
    sig(
        "DTYPE_UNSUPPORTED",
        r"Bfloat16 is only supported on GPUs with compute capability of at least (?P<needed>\d+(?:\.\d+)?)\. Your "
        r".*?compute capability (?P<has>\d+(?:\.\d+)?)",
        "bfloat16 needs compute capability {needed}; this GPU has {has}.",
        "Start with dtype float16.",
        arithmetic="has {has} < needed {needed}",
        phase="load",
    ),
    sig(
        "QUANT_UNSUPPORTED_GPU",
        r"quantization method (?P<method>\S+) is not supported for the current GPU\. Minimum capability: "
        r"(?P<needed>\d+)\. Current capability: (?P<has>\d+)",
        "Quantisation {method} needs a GPU of capability {needed}; this one has {has}.",
        "Use a checkpoint in another format, or a newer GPU.",
        arithmetic="has {has} < needed {needed}",
    ),
    sig(
        "CUDA_FAULT",
        r"illegal memory access|device-side assert triggered|misaligned address|unspecified launch failure|illegal "
        r"instruction was encountered|"
        r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)",
        "A kernel faulted on the GPU.",
        "Start once with CUDA_LAUNCH_BLOCKING=1 for the true place; try another attention backend and read `dmesg` "
        "for Xid lines.",
        rank=Rank.VAGUE,
    ),
    sig(
        "CUDA_LIBRARY",
        r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|NOT_SUPPORTED|ARCH_MISMATCH)|CUDNN_STATUS_NOT_INITIALIZED|"
        r"cudnnException",
        "A CUDA library could not start: mostly no GPU memory was left for its workspace, else a version mismatch.",
        "Lower the memory fraction; then compare the CUDA versions of torch and of the libraries.",
        rank=Rank.VAGUE,
    ),
    sig(
        "OOM_GPU",
        r"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate "
        + _SIZE.format("asked")
        + r"(?:.*?GPU (?P<gpu>\d+))?(?:.*?total capacity of (?P<total_gib>[\d.]+) GiB)?(?:.*?of which "
        + _SIZE.format("free")
        + r" is free)?",
        "GPU out of memory.",
        refine=out_of_memory,
    ),
    sig(
        "OOM_GPU",
        r"allocating (?P<asked>[\d.]+) (?P<asked_unit>MiB) on device (?P<gpu>\d+): cudaMalloc failed: out of memory",
        "GPU out of memory.",
        refine=out_of_memory,
    ),
    sig(
        "OOM_GPU",
        r"(?:CUDA|HIP|XPU) (?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|"
        r"OutOfMemoryError",
        "GPU out of memory.",
        refine=out_of_memory,
    ),
)

CPU_FALLBACK: tuple[Signature, ...] = (
    sig(
        "RUNNING_ON_CPU",
        r"[Ff]alling back to CPU|no usable GPU found|ggml_cuda_init: failed to initialize CUDA: (?!no CUDA-capable)|"
        r"compiled without (?:GPU|CUDA) support.{0,40}(?:ignored|CPU)|No platform detected, .{0,20}CPU",
        "The server runs on the CPU; the GPUs are unused.",
        "Stop it; fix driver, CUDA build or CUDA_VISIBLE_DEVICES, then start again.",
        anywhere=True,
        fatal=False,
    ),
)
