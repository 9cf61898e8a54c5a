"""amd-smi and rocm-smi: JSON after banners, `N/A`, lists for values, key names that vary by ROCm version."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tokpit.domain.records import GpuProcess, GpuSample, Problem
from tokpit.domain.text import sanitize
from tokpit.probes.gpu import GpuPoll, fraction, number
from tokpit.probes.sections import mark, sections, status_mark, status_of

_NO_DATA = Problem("GPU_NO_DATA", "the tool gives no data for that query on this GPU", info=True)


class AmdReader:
    """A `GpuReader` for amd-smi, with rocm-smi where amd-smi is absent or silent."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, str]] = {}

    def script(self) -> str:
        """One poll; names and uuids are asked until they are known."""
        lines = [
            'export LC_ALL=C; PATH="$PATH:/opt/rocm/bin"',
            mark("amd"),
            "amd-smi metric --json 2>/dev/null",
            status_mark("amdstatus"),
            "if command -v amd-smi >/dev/null 2>&1; then",
            mark("amdproc"),
            "amd-smi process --json 2>/dev/null",
        ]
        if not self._names:
            lines += [mark("amdlist"), "amd-smi list --json 2>/dev/null"]
            lines += [mark("amdasic"), "amd-smi static --asic --json 2>/dev/null"]
        lines += [
            "fi",
            mark("rocm"),
            "rocm-smi --showproductname --showuniqueid --showuse --showmeminfo vram --showpower --showtemp --json"
            " 2>/dev/null",
            status_mark("rocmstatus"),
            mark("end"),
            "",
        ]
        return "\n".join(lines)

    def read(self, output: str, took_s: float) -> GpuPoll:
        """GPUs from amd-smi where it answers, else from rocm-smi."""
        found = sections(output)
        if status_of(found, "amdstatus") == 127 and status_of(found, "rocmstatus") == 127:
            return GpuPoll(absent=True)
        for key, item in _items(load(found.get("amdlist", ""))):
            self._names[key] = (self._names.get(key, ("", ""))[0], _word(item.get("uuid")))
        for key, item in _items(load(found.get("amdasic", ""))):
            self._names[key] = (_word(_dict(item, "asic").get("market_name")), self._names.get(key, ("", ""))[1])
        gpus, problems = parse_amd_smi(found.get("amd", ""), self._names)
        if not gpus:
            gpus, problems = parse_rocm_smi(found.get("rocm", ""))
        uuids = {gpu.index: gpu.uuid for gpu in gpus}
        return GpuPoll(gpus=gpus, problems=problems, processes=parse_processes(found.get("amdproc", ""), uuids))


def load(text: str) -> Any:
    """The JSON document in a text that may begin with a warning; None where there is none."""
    for start in re.finditer(r"(?m)^\s*[\[{]", text):
        try:
            return json.JSONDecoder().raw_decode(text[start.start() :].lstrip())[0]
        except ValueError:
            continue
    return None


def parse_amd_smi(
    text: str, names: Mapping[int, tuple[str, str]] | None = None
) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
    """GPUs of `amd-smi metric --json`: a list, or (newer) an object with `gpu_data`."""
    document = load(text)
    gpus = []
    for index, item in _items(document):
        usage, memory = _dict(item, "usage"), _dict(item, "mem_usage")
        power, temperature = _dict(item, "power"), _dict(item, "temperature")
        clocks = _dict(item, "clock")
        clock = _dict(clocks, "gfx_0") or _dict(clocks, "gfx")
        name, uuid = (names or {}).get(index, ("", ""))
        gpus.append(
            GpuSample(
                index=index,
                uuid=uuid,
                name=name,
                util=fraction(_value(usage.get("gfx_activity"))),
                mem_used_mib=_mib(memory.get("used_vram")),
                mem_total_mib=_mib(memory.get("total_vram")),
                power_w=_first(power, "socket_power", "current_socket_power", "average_socket_power"),
                power_limit_w=_first(power, "power_cap", "current_power_cap"),
                temp_c=_first(temperature, "hotspot", "edge"),
                sm_clock_mhz=_first(clock, "clk", "cur_clk"),
                sm_clock_max_mhz=_first(clock, "max_clk"),
            )
        )
    return plausible(gpus, problems=() if document is not None else (_NO_DATA,))


def parse_amd_csv(text: str) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
    """GPUs of `amd-smi ... --csv`; a cell may hold a printed list, of which the mean is taken."""
    rows = [line for line in text.split("\n") if line.count(",") >= 1]
    gpus = []
    for position, row in enumerate(csv.DictReader(rows)):
        cells = {key: _value(value) for key, value in row.items() if isinstance(key, str)}
        index = cells.get("gpu")
        gpus.append(
            GpuSample(
                index=int(index) if index is not None else position,
                uuid="",
                name="",
                util=fraction(cells.get("gfx_activity")),
                power_w=cells.get("socket_power"),
                temp_c=cells.get("hotspot"),
                sm_clock_mhz=cells.get("gfx_clk"),
                mem_used_mib=cells.get("used_vram"),
                mem_total_mib=cells.get("total_vram"),
            )
        )
    return plausible(gpus, problems=() if gpus else (_NO_DATA,))


def parse_rocm_smi(text: str) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
    """GPUs of `rocm-smi ... --json` or `--csv`, or of its concise table; key names differ between versions."""
    document = load(text) or _cards(text)
    if not isinstance(document, dict):
        return _concise(text)
    gpus = []
    for key, card in document.items():
        found = re.fullmatch(r"card(\d+)", key)
        if not found or not isinstance(card, dict):
            continue
        gpus.append(
            GpuSample(
                index=int(found.group(1)),
                uuid=_word(card.get("Unique ID")),
                name=_word(card.get("Card Series") or card.get("Card series") or card.get("Card model")),
                util=fraction(_like(card, r"GPU use \(%\)")),
                mem_used_mib=_bytes(_like(card, r"VRAM Total Used Memory")),
                mem_total_mib=_bytes(_like(card, r"VRAM Total Memory")),
                power_w=_like(card, r"(?:Current|Average).*Power \(W\)"),
                power_limit_w=_positive(_like(card, r"Max Graphics Package Power")),
                temp_c=_like(card, r"Temperature \(Sensor junction\)") or _like(card, r"Temperature \(Sensor edge\)"),
            )
        )
    return plausible(gpus, problems=() if gpus else (_NO_DATA,))


def _cards(text: str) -> dict[str, dict[str, Any]] | None:
    """The document of `--json` from what `--csv` prints: a row a card, the same names as columns."""
    start = re.search(r"(?m)^device,", text)
    if start is None:
        return None
    return {str(row.pop("device")): dict(row) for row in csv.DictReader(text[start.start() :].splitlines())}


def _concise(text: str) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
    """The table that rocm-smi prints without options: columns by the header's words.

    ROCm 4 and 5 head the number `GPU`; 6 and later `Device`, with a second line and cells such as `NPS1, SPX, 0`.
    """
    heads: list[str] = []
    gpus = []
    for line in text.split("\n"):
        words = re.sub(r",\s+", ",", sanitize(line)).split()
        if words[:1] in (["GPU"], ["Device"]) and "GPU%" in words:
            heads = words
        elif heads and len(words) == len(heads) and words[0].isdecimal():
            cells = {head: number(word) for head, word in zip(heads, words, strict=True)}
            gpus.append(
                GpuSample(
                    index=int(words[0]),
                    uuid="",
                    name="",
                    util=fraction(cells.get("GPU%")),
                    power_w=cells.get("AvgPwr") if "AvgPwr" in cells else cells.get("Power"),
                    # The second die of a package has no cap of its own and prints 0.
                    power_limit_w=_positive(cells.get("PwrCap")),
                    temp_c=cells.get("Temp"),
                    sm_clock_mhz=cells.get("SCLK"),
                )
            )
    return plausible(gpus, problems=() if gpus else (_NO_DATA,))


def parse_processes(text: str, uuids: Mapping[int, str]) -> tuple[GpuProcess, ...]:
    """GPU memory by process from `amd-smi process --json`."""
    found = []
    for index, item in _items(load(text)):
        for entry in item.get("process_list") or ():
            info = _dict(entry, "process_info") if isinstance(entry, dict) else {}
            pid = _value(info.get("pid"))
            if pid is None:
                continue
            usage = _dict(info, "memory_usage").get("vram_mem", info.get("mem_usage", info.get("vram_mem")))
            found.append(GpuProcess(uuids.get(index, ""), int(pid), _word(info.get("name")), _mib(usage)))
    return tuple(found)


def plausible(
    gpus: Iterable[GpuSample], problems: tuple[Problem, ...] = ()
) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
    """A few watts at full load is a fault of the tool, not a figure: power becomes unknown and is told."""
    kept, told = [], list(problems)
    for gpu in gpus:
        if gpu.power_w is not None and gpu.power_w < 10 and gpu.util is not None and gpu.util >= 0.5:
            told.append(
                Problem(
                    "GPU_SENSOR_IMPLAUSIBLE",
                    f"GPU {gpu.index}: {gpu.power_w:g} W at {gpu.util:.0%} load is implausible and not shown",
                    gpu.index,
                )
            )
            gpu = msgspec.structs.replace(gpu, power_w=None)
        kept.append(gpu)
    return tuple(kept), tuple(told)


def merge(better: Iterable[GpuSample], other: Iterable[GpuSample]) -> tuple[tuple[GpuSample, ...], tuple[Problem, ...]]:
    """Samples of two tools for the same GPUs: the first one's figures, with a word where the other's power differs."""
    second = {gpu.index: gpu for gpu in other}
    kept, told = [], []
    for gpu in better:
        rival = second.get(gpu.index)
        if (
            gpu.power_w is not None
            and rival is not None
            and rival.power_w is not None
            and rival.power_w < gpu.power_w / 4
        ):
            load_ = f" at {gpu.util:.0%} load" if gpu.util is not None else ""
            told.append(
                Problem(
                    "GPU_SENSOR_IMPLAUSIBLE",
                    f"GPU {gpu.index}: rocm-smi says {rival.power_w:g} W{load_}, implausible; "
                    f"amd-smi's {gpu.power_w:g} W is shown",
                    gpu.index,
                    info=True,
                )
            )
        kept.append(gpu)
    return tuple(kept), tuple(told)


def _items(document: Any) -> list[tuple[int, dict[str, Any]]]:
    rows = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        return []
    found = []
    for position, item in enumerate(rows):
        if isinstance(item, dict):
            index = item.get("gpu", position)
            found.append((index if isinstance(index, int) else position, item))
    return found


def _dict(item: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = item.get(key)
    return value if isinstance(value, dict) else {}


def _value(cell: object) -> float | None:
    """A number that came bare, as text, as {value, unit}, or as a list of which the mean is taken."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float):
        return float(cell) if math.isfinite(cell) and abs(cell) < 1e18 else None
    if isinstance(cell, dict):
        return _value(cell.get("value"))
    if isinstance(cell, str) and cell.startswith("["):
        cell = re.findall(r"[\d.]+", cell)
    if isinstance(cell, list):
        values = [v for v in (_value(part) for part in cell) if v is not None]
        return sum(values) / len(values) if values else None
    return number(cell) if isinstance(cell, str) else None


def _mib(cell: object) -> float | None:
    value = _value(cell)
    unit = str(cell.get("unit", "MB")).upper() if isinstance(cell, dict) else "MB"
    scale = {"B": 2**-20, "KB": 2**-10, "MB": 1.0, "GB": 1024.0}.get(unit, 1.0)
    return None if value is None else value * scale


def _bytes(value: float | None) -> float | None:
    return None if value is None else value / 2**20


def _positive(value: float | None) -> float | None:
    return value if value else None


def _first(item: Mapping[str, Any], *keys: str) -> float | None:
    return next((v for v in (_value(item.get(key)) for key in keys) if v is not None), None)


def _like(card: Mapping[str, Any], pattern: str) -> float | None:
    return next((_value(value) for key, value in card.items() if re.match(pattern, str(key))), None)


def _word(value: object) -> str:
    text = sanitize(str(value)) if isinstance(value, str | int) else ""
    return "" if text == "N/A" else text
