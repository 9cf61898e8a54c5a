"""Memory bandwidth of GPUs by name, in GB/s (1e9), from the makers' data sheets; a user's own table goes first.

docs/gpu-bandwidth.md says which figures were checked against a published source, and which.

MIG slices get their share of the memory slices (eighths). Parts with unified memory share it with the processor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from tokpit.insight.gpu_peaks import PEAKS

HBM, GDDR, UNIFIED = "HBM", "GDDR", "unified"


class Gpu(msgspec.Struct, frozen=True):
    """A part. `note`: which variant or source the figure is of."""

    name: str
    bandwidth_gbps: float
    memory: str = GDDR
    note: str = "data sheet"
    peak_tflops: float | None = None
    """Dense 16-bit matrix rate; None: not known (see `gpu_peaks`)."""


_BANDWIDTHS: tuple[Gpu, ...] = (
    # NVIDIA, data centre
    Gpu("GB300", 8000, HBM),
    Gpu("GB200", 8000, HBM),
    Gpu("B300", 8000, HBM),
    Gpu("B200", 8000, HBM, "HGX data sheet; 7700 on some boards"),
    Gpu("GH200 480GB", 4000, HBM, "96 GB HBM3"),
    Gpu("GH200 144GB", 4900, HBM, "HBM3e"),
    Gpu("GH200", 4000, HBM, "96 GB HBM3"),
    Gpu("H200 NVL", 4800, HBM),
    Gpu("H200", 4800, HBM),
    Gpu("H100 NVL", 3900, HBM),
    Gpu("H100 PCIe", 2000, HBM),
    Gpu("H100 80GB HBM3", 3350, HBM, "SXM"),
    Gpu("H100", 3350, HBM, "SXM"),
    Gpu("H800", 3350, HBM, "SXM"),
    Gpu("H20", 4000, HBM, "96 GB; the 141 GB part has 4800"),
    Gpu("H20 3e", 4800, HBM, "141 GB"),
    Gpu("A100 80GB PCIe", 1935, HBM),
    Gpu("A100 SXM4 80GB", 2039, HBM),
    Gpu("A100 80GB", 2039, HBM, "SXM"),
    Gpu("A100 40GB", 1555, HBM),
    Gpu("A100 SXM4 40GB", 1555, HBM),
    Gpu("A100 PCIE 40GB", 1555, HBM),
    Gpu("A100", 1555, HBM, "40 GB; the 80 GB part has 1935 to 2039"),
    Gpu("A800 SXM4 80GB", 2039, HBM),
    Gpu("A800 80GB PCIe", 1935, HBM),
    Gpu("A800 40GB", 1555, HBM),
    Gpu("A800", 2039, HBM, "80 GB SXM"),
    Gpu("A30", 933, HBM),
    Gpu("A40", 696),
    Gpu("A16", 200, GDDR, "each of four GPUs"),
    Gpu("A10G", 600),
    Gpu("A10", 600),
    Gpu("A2", 200),
    Gpu("L40S", 864),
    Gpu("L40", 864),
    Gpu("L20", 864),
    Gpu("L4", 300),
    Gpu("V100S", 1134, HBM),
    Gpu("V100", 900, HBM),
    Gpu("P100", 732, HBM, "16 GB"),
    Gpu("P40", 346),
    Gpu("T4", 320),
    # NVIDIA, workstation
    Gpu("RTX PRO 6000 Blackwell", 1792, GDDR, "Workstation, Max-Q; the Server edition has 1597"),
    Gpu("RTX PRO 6000 Blackwell Server", 1597, GDDR, "NVIDIA's data sheet of December 2025"),
    Gpu("RTX PRO 6000", 1792),
    Gpu("RTX PRO 5000", 1344),
    Gpu("RTX PRO 4500", 896),
    Gpu("RTX PRO 4000", 672),
    Gpu("RTX PRO 4000 SFF", 432),
    Gpu("RTX PRO 2000", 288),
    Gpu("RTX 6000 Ada", 960),
    Gpu("RTX 5880 Ada", 960),
    Gpu("RTX 5000 Ada", 576),
    Gpu("RTX 4500 Ada", 432),
    Gpu("RTX 4000 SFF Ada", 280),
    Gpu("RTX 4000 Ada", 360),
    Gpu("RTX 2000 Ada", 224),
    Gpu("RTX A6000", 768),
    Gpu("RTX A5500", 768),
    Gpu("RTX A5000", 768),
    Gpu("RTX A4500", 640),
    Gpu("RTX A4000", 448),
    Gpu("RTX A2000", 288),
    Gpu("Quadro RTX 8000", 672),
    Gpu("Quadro RTX 6000", 672),
    Gpu("Quadro RTX 5000", 448),
    Gpu("TITAN RTX", 672),
    # NVIDIA, GeForce
    Gpu("RTX 5090", 1792),
    Gpu("RTX 5090 Laptop", 896),
    Gpu("RTX 5080 Laptop", 896),
    Gpu("RTX 5070 Ti Laptop", 672),
    Gpu("RTX 5080", 960),
    Gpu("RTX 5070 Ti", 896),
    Gpu("RTX 5070", 672),
    Gpu("RTX 5060 Ti", 448),
    Gpu("RTX 5060", 448),
    Gpu("RTX 4090 D", 1008),
    Gpu("RTX 4090", 1008),
    Gpu("RTX 4090 Laptop", 576),
    Gpu("RTX 4080 Laptop", 432),
    Gpu("RTX 4070 Laptop", 256),
    Gpu("RTX 4080 SUPER", 736),
    Gpu("RTX 4080", 717),
    Gpu("RTX 4070 Ti SUPER", 672),
    Gpu("RTX 4070 Ti", 504),
    Gpu("RTX 4070 SUPER", 504),
    Gpu("RTX 4070", 504),
    Gpu("RTX 4060 Ti", 288),
    Gpu("RTX 4060", 272),
    Gpu("RTX 3090 Ti", 1008),
    Gpu("RTX 3090", 936),
    Gpu("RTX 3080 Ti", 912),
    Gpu("RTX 3080", 760, GDDR, "10 GB; the 12 GB part has 912"),
    Gpu("RTX 3070 Ti", 608),
    Gpu("RTX 3070", 448),
    Gpu("RTX 3060 Ti", 448, GDDR, "GDDR6; the GDDR6X part has 608"),
    Gpu("RTX 3060 Laptop", 336),
    Gpu("RTX 3060", 360, GDDR, "12 GB"),
    Gpu("RTX 2080 Ti", 616),
    Gpu("RTX 2080 SUPER", 496),
    Gpu("RTX 2080", 448),
    Gpu("RTX 2070 SUPER", 448),
    Gpu("RTX 2060 SUPER", 448),
    Gpu("RTX 2060", 336),
    Gpu("GTX 1080 Ti", 484),
    # Unified memory
    Gpu("GB10", 273, UNIFIED, "LPDDR5X, shared with the processor"),
    Gpu("Thor", 273, UNIFIED, "LPDDR5X, shared with the processor"),
    Gpu("Orin", 204.8, UNIFIED, "AGX, LPDDR5"),
    Gpu("Orin NX", 102.4, UNIFIED, "LPDDR5"),
    Gpu("Orin Nano", 68, UNIFIED, "LPDDR5; 102 in the Super mode"),
    Gpu("Ryzen AI Max", 256, UNIFIED, "LPDDR5X-8000, 256 bit"),
    Gpu("Radeon 8060S", 256, UNIFIED, "LPDDR5X-8000, 256 bit"),
    Gpu("M3 Ultra", 819, UNIFIED),
    Gpu("M2 Ultra", 800, UNIFIED),
    Gpu("M5 Max", 614, UNIFIED, "40 GPU cores; 460 with 32"),
    Gpu("M4 Max", 546, UNIFIED, "40 GPU cores; 410 with 32"),
    Gpu("M3 Max", 400, UNIFIED, "40 GPU cores; 300 with 30"),
    Gpu("M2 Max", 400, UNIFIED),
    Gpu("M1 Ultra", 800, UNIFIED),
    Gpu("M1 Max", 400, UNIFIED),
    Gpu("M4 Pro", 273, UNIFIED),
    # AMD
    Gpu("MI355X", 8000, HBM),
    Gpu("MI350X", 8000, HBM),
    Gpu("MI325X", 6000, HBM),
    Gpu("MI300X", 5300, HBM),
    Gpu("MI300A", 5300, HBM),
    Gpu("MI308X", 5300, HBM),
    Gpu("MI250X", 1638, HBM, "each of two dies"),
    Gpu("MI250", 1638, HBM, "each of two dies"),
    Gpu("MI210", 1638, HBM),
    Gpu("MI100", 1229, HBM),
    Gpu("RX 7900 XTX", 960),
    Gpu("RX 7900 XT", 800),
    Gpu("W7900", 864),
    Gpu("RX 9070 XT", 645),
    Gpu("AI PRO R9700", 645),
    # Intel
    Gpu("Gaudi 3", 3700, HBM),
    Gpu("Gaudi 2", 2450, HBM),
    Gpu("Max 1550", 3277, HBM),
    Gpu("Arc Pro B60", 456),
    Gpu("Arc B580", 456),
)

_TABLE = tuple(msgspec.structs.replace(gpu, peak_tflops=PEAKS.get(gpu.name)) for gpu in _BANDWIDTHS)
GPUS: dict[str, Gpu] = {gpu.name: gpu for gpu in _TABLE}
_MIG = re.compile(r"\b([1-7])g\.\d+gb\b", re.I)
_MEMORY_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
_WORDS = re.compile(r"[a-z]+\d*[a-z0-9]*|\d+[a-z]*")


def lookup(name: str, own: Mapping[str, float] | None = None) -> Gpu | None:
    """The part whose words are all in this name, the one with most words first; None for an unknown name.

    `own`: a user's table of name to GB/s, which goes before the built-in one. A MIG profile in the name
    (`3g.40gb`) leaves its share of the bandwidth.
    """
    known = _best(name, _TABLE)
    peak = known.peak_tflops if known is not None else None
    table = [Gpu(key, value, "", "the user's table", peak) for key, value in (own or {}).items()]
    best = _best(name, table) or known
    profile = _MIG.search(name)
    if best is None or profile is None:
        return best
    share = _MEMORY_EIGHTHS.get(int(profile[1]), 8)
    note = f"{share} of 8 memory slices"
    # A slice g of 7 has as many of the seven groups of multiprocessors.
    peak = None if best.peak_tflops is None else best.peak_tflops * int(profile[1]) / 7
    return Gpu(f"{best.name} {profile[0]}", best.bandwidth_gbps * share / 8, best.memory, note, peak)


def _best(name: str, table: tuple[Gpu, ...] | list[Gpu]) -> Gpu | None:
    words = _split(name)
    fits = [gpu for gpu in table if _split(gpu.name) <= words]
    if not fits:  # people write 5090 and A6000
        fits = [gpu for gpu in table if (short := _split(gpu.name) - {"rtx"}) and short <= words]
    return max(fits, key=lambda gpu: len(_split(gpu.name))) if fits else None


def _split(name: str) -> set[str]:
    text = re.sub(r"(?<=\d)\s+(?=gb\b)", "", _MIG.sub("", name).lower())
    words = set(_WORDS.findall(text))
    # RTX4090, RTXA6000: the series word is often written together with the number.
    return words | {part for word in words if word.startswith("rtx") and word != "rtx" for part in ("rtx", word[3:])}
