"""What the fleet says of one host, cell by cell, and of all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokpit.domain.records import GpuSample, LinkState
from tokpit.store.live import HostState, ServerState
from tokpit.ui import figures
from tokpit.ui.text import Row, Span, crop, fit, fitting, row_width, safe
from tokpit.ui.view import View, engine_title, model_name
from tokpit.ui.widgets.header import LINKS, link_trouble, phase_sign
from tokpit.ui.widgets.tree import short_gpu

LARGE, WIDE, MIDDLE = 190, 150, 110
_COLUMNS = {
    LARGE: {"host": 24, "link": 12, "GPUs": 30, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 5,
            "queue": 6, "KV": 5, "TTFT p50": 9},
    WIDE: {"host": 20, "link": 10, "GPUs": 26, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 5,
           "queue": 6},
    MIDDLE: {"host": 14, "link": 8, "GPUs": 14, "util": 5, "mem": 5, "power": 7, "temp": 5, "tok/s": 8, "run": 4,
             "queue": 6},
    0: {"host": 12, "link": 8, "GPUs": 4, "util": 5, "mem": 5, "tok/s": 8, "run": 4, "queue": 6},
}  # fmt: skip
_FIRST_OUT = ("GPUs", "mem", "run", "util")
"""Columns that a narrow terminal does without, in this order: a column that is cut says nothing."""
LEFT = frozenset({"host", "link", "GPUs"})
SERVERS_LEAST = 13
_WORDS = {LinkState.NEW: "off", LinkState.CONNECTING: "trying", LinkState.LOST: "lost"}
"""Link states where there is little room."""
_LOAD = {"tok/s": "gen_tps", "run": "running_reqs", "queue": "queue_reqs"}


def columns_for(width: int) -> dict[str, int]:
    """Width of each column in a panel of that width; `servers` takes what is left."""
    columns = dict(next(columns for least, columns in _COLUMNS.items() if width >= least))
    for name in _FIRST_OUT:
        if sum(columns.values()) + len(columns) + SERVERS_LEAST <= width:
            break
        del columns[name]
    return columns


def fresh(view: View, state: HostState, tag: str) -> list[float]:
    """The figure of every live server of the host that has a fresh one."""
    values = []
    for server_id in state.server_ids:
        server = view.store.servers[server_id]
        series = server.series.get(tag)
        if server.alive and series is not None and series.last is not None:
            values += [] if view.stale_on(state.name, series.last_t) else [series.last]
    return values


def total(values: Sequence[float]) -> float | None:
    """Their sum; None where there is none."""
    return sum(values) if values else None


def link_cell(state: HostState | None, width: int) -> Span:
    """Glyph, and round trip or state."""
    link = state.link if state is not None else None
    glyph, word, style = LINKS[link.state if link is not None else LinkState.NEW]
    if link is not None and link.state is LinkState.UP and link.rtt_s is not None:
        word = f"{figures.number(link.rtt_s * 1000, 0)} ms"
    elif len(word) + 2 > width and link is not None:
        word = _WORDS.get(link.state, word)
    return fit(f"{glyph} {word}", width), style


def gpu_cells(view: View, state: HostState, columns: Mapping[str, int]) -> list[Span]:
    """Count and names, mean use, memory, power together, the hottest; a sign where one is throttled."""
    record = state.gpus
    names = [name for name in ("GPUs", "util", "mem", "power", "temp") if name in columns]
    if record is None or not record.gpus:
        said = "" if record is None else "no GPU" if not record.problems else "see the cockpit"
        return [(fit(said, sum(columns[name] + 1 for name in names)), "dim")]
    gpus = record.gpus
    style = "stale" if view.stale_on(state.name, record.t) else "fg"
    utils = [g.util for g in gpus if g.util is not None]
    powers = [g.power_w for g in gpus if g.power_w is not None]
    temps = [g.temp_c for g in gpus if g.temp_c is not None]
    what = f" {', '.join(dict.fromkeys(short_gpu(g.name) for g in gpus))}" if columns.get("GPUs", 0) > 6 else ""
    cells = {
        "GPUs": f"{len(gpus)}×{what}",
        "util": figures.percent(sum(utils) / len(utils) if utils else None),
        "mem": figures.percent(memory_share(gpus)),
        "power": f"{figures.number(sum(powers) if powers else None, 0)} W",
        "temp": f"{figures.number(max(temps) if temps else None, 0)}°",
    }
    if any(g.throttle for g in gpus):
        cells[names[-1]] = "⚠" + cells[names[-1]]
    spans = [(fit(cells[name], columns[name], right=name not in LEFT) + " ", style) for name in names]
    if any(g.throttle for g in gpus):
        spans[-1] = (spans[-1][0], "bad")
    return spans


def memory_share(gpus: Sequence[GpuSample]) -> float | None:
    """Used of all GPU memory; None where nothing is known."""
    used = [(g.mem_used_mib, g.mem_total_mib) for g in gpus if g.mem_used_mib is not None and g.mem_total_mib]
    return sum(u for u, _ in used) / sum(t for _, t in used) if used else None


def load_cells(view: View, state: HostState, columns: Mapping[str, int]) -> list[Span]:
    """Rate, running and queued of all servers; the fullest KV cache and the slowest first token."""
    spans: list[Span] = []
    for name, tag in _LOAD.items():
        if name in columns:
            value = total(fresh(view, state, tag))
            said = figures.fixed(value) if name == "tok/s" else figures.number(value, 0)
            style = "dim" if value is None else "warn" if name == "queue" and value else "fg"
            spans.append((fit(said, columns[name], right=True) + " ", style))
    for name, tag, say in (("KV", "kv_usage", figures.percent), ("TTFT p50", "ttft_p50_s", figures.seconds)):
        if name in columns:
            worst = max(fresh(view, state, tag), default=None)
            spans.append((fit(say(worst), columns[name], right=True) + " ", "dim" if worst is None else "fg"))
    return spans


def server_cells(view: View, state: HostState, width: int) -> list[Span]:
    """Trouble with the link, else alarms and each server with as many of its words as fit."""
    trouble = link_trouble(state.link)
    if trouble:
        return [(crop(trouble, width), "bad")]
    if not state.server_ids:
        return [("no server" if state.memory is not None else "looking …", "dim")]
    alarms = view.alarms(state.name, *state.server_ids)
    new = any(not alarm.acknowledged for alarm in alarms)
    sign: Span = (f"{'▲' if new else '△'}{len(alarms)}", "bad-bold" if new else "dim")
    servers = [view.store.servers[server_id] for server_id in state.server_ids]
    for words in (3, 2, 1):
        parts = [[sign]] if alarms else []
        parts += [_server(view, server, words) for server in servers]
        if sum(row_width(part) + 1 for part in parts) - 1 <= width or words == 1:
            break
    row, left_out = fitting(parts, width, gap=1)
    if left_out:
        row, left_out = fitting(parts, width - 4, gap=1)
        row.append((f" +{left_out}", "dim"))
    claim = safe(alarms[0].finding.claim) if alarms else ""
    if claim and width - row_width(row) >= 24:
        row += [("  ", "fg"), (crop(claim, width - row_width(row) - 2), "bad" if new else "dim")]
    return row


def _server(view: View, server: ServerState, words: int) -> list[Span]:
    """Sign and port; with two words the engine as well, with three the model and how much was found."""
    info = server.info
    glyph, style = phase_sign(view, server)
    port = f":{info.port}" if info.port else f"pid {info.pid}"
    spans: list[Span] = [(glyph, style), (f" {port}", "fg")]
    model = safe(info.served_name) if info.served_name else model_name(info.model)
    if words > 1:
        spans.append((f" {engine_title(info.engine)}" + (f" {model}" if words > 2 else ""), "dim"))
    diagnosed = view.diagnosed.get(info.id)
    grave = sum(f.severity != "info" for f in diagnosed.findings) if diagnosed is not None else 0
    return [*spans, (f" {grave} findings", "warn")] if grave and words > 2 else spans


def all_together(view: View, width: int) -> Row:
    """Sums over every host: GPUs, their use, rate, running, queued, alarms."""
    states = [state for state in view.store.hosts.values() if view.linked(state.name)]
    gpus = [gpu for state in states if state.gpus is not None for gpu in state.gpus.gpus]
    servers = sum(view.store.servers[i].alive for state in states for i in state.server_ids)
    if not states:
        return []
    parts: list[list[Span]] = [[(f"{servers}", "bold"), (f" server{'s' if servers != 1 else ''}", "dim")]]
    subjects = [name for state in states for name in (state.name, *state.server_ids)]
    if alarms := view.alarms(*subjects):
        new = any(not alarm.acknowledged for alarm in alarms)
        said = f"{'▲' if new else '△'} {len(alarms)} alarm{'s' if len(alarms) != 1 else ''}"
        parts.append([(said, "bad-bold" if new else "dim")])
    for name, tag in _LOAD.items():
        value = total([one for state in states for one in fresh(view, state, tag)])
        said = f"{value:.0f} tok/s" if name == "tok/s" and value is not None else figures.number(value, 0)
        style = "warn" if name == "queue" and value else "fg"
        parts.append([("" if name == "tok/s" else f"{name} ", "dim"), (said, style)])
    if gpus:
        utils = [gpu.util for gpu in gpus if gpu.util is not None]
        use = figures.percent(sum(utils) / len(utils) if utils else None)
        parts.append([(f"{len(gpus)}", "bold"), (" GPUs  util ", "dim"), (use, "fg")])
        parts.append([("mem ", "dim"), (figures.percent(memory_share(gpus)), "fg")])
    return fitting(parts, width, gap=3)[0]
