"""The two lines on top: where we are, whether the link holds, what the server is doing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tokpit.domain.records import LinkRecord, LinkState
from tokpit.store.live import ServerState
from tokpit.ui import figures
from tokpit.ui.text import Row, Span, fitting, row_width, safe, two_sided
from tokpit.ui.view import View, engine_title, model_name, phase_of, simulated_label, steps_per_s
from tokpit.ui.widgets.panel import Panel

LINKS: dict[LinkState, tuple[str, str, str]] = {
    LinkState.NEW: ("○", "not connected", "dim"),
    LinkState.CONNECTING: ("◌", "connecting", "warn"),
    LinkState.UP: ("●", "up", "good"),
    LinkState.LOST: ("✗", "link lost", "bad"),
    LinkState.FAILED: ("✗", "failed", "bad"),
    LinkState.CLOSED: ("○", "closed", "dim"),
}
STALL_SHOWN_S = 60.0
PHASES: dict[str, tuple[str, str]] = {
    "ready": ("●", "good-bold"),
    "serving": ("●", "good-bold"),
    "queued": ("◌", "warn-bold"),
    "starting": ("◐", "warn-bold"),
    "loading": ("◐", "warn-bold"),
    "capturing": ("◐", "warn-bold"),
    "stopping": ("◑", "warn-bold"),
    "failed": ("✗", "bad-bold"),
    "gone": ("✗", "bad-bold"),
    "unknown": ("?", "dim"),
}


def phase_sign(view: View, server: ServerState) -> tuple[str, str]:
    """Glyph and style of a server's phase; over a link that is not up nobody knows it."""
    if server.alive and not view.linked(server.info.host):
        return PHASES["unknown"]
    return PHASES.get(phase_of(view, server), PHASES["unknown"])


def link_spans(link: LinkRecord | None, *, short: bool = False) -> list[Span]:
    """Glyph and word of a link's state; the round trip, or the retry, where there is room."""
    if link is None:
        return [("◌ ", "warn"), ("connecting", "warn")]
    glyph, word, style = LINKS[link.state]
    spans: list[Span] = [(glyph + " ", style), (word, style)]
    if not short and link.state is LinkState.UP and link.rtt_s is not None:
        spans.append((f" {link.rtt_s * 1000:.0f} ms", "dim"))
    return spans


def link_trouble(link: LinkRecord | None) -> str:
    """Why the link is not up and when it is tried again; empty where it is up."""
    if link is None or link.state in {LinkState.UP, LinkState.NEW, LinkState.CONNECTING}:
        return ""
    parts = [safe(link.reason)] if link.reason else []
    if link.retry_in_s is not None:
        parts.append(f"retry in {figures.duration(link.retry_in_s)}")
    return " · ".join(parts)


class Header(Panel):
    """Two rows across the screen."""

    framed = False
    DEFAULT_CSS = "Header { height: 2; }"

    def __init__(self, view: View) -> None:
        super().__init__(id="header")
        self.view = view

    def topics(self) -> Sequence[str]:
        """Host, server, the list of hosts, and tokpit itself."""
        return ("hosts", "stalls", *self.view.topics("host", "server"))

    def body(self, width: int, height: int) -> Sequence[Row]:
        """Identity above, state below."""
        return [self._identity(width), self._state(width)]

    def _identity(self, width: int) -> Row:
        view = self.view
        left: list[Span] = [(" tokpit ", "brand"), (" ", "fg")]
        host, server = view.host_state, view.server
        if view.host:
            name = server.info.label if server else view.host
            left += [(safe(name), "bold"), ("  ", "fg"), *link_spans(host.link if host else None)]
        right: list[Span] = []
        version: list[Span] = []
        alarms = view.alarms(view.server_id, view.host)
        if alarms:
            new = sum(not alarm.acknowledged for alarm in alarms)
            word = f"{len(alarms)} alarm{'s' if len(alarms) > 1 else ''}"
            left.append(("  ", "fg"))
            left.append((f"▲ {word}", "bad-bold") if new else (f"△ {word}, known", "dim"))
        if server is not None:
            info = server.info
            model = safe(info.served_name) if info.served_name else model_name(info.model)
            engine = engine_title(info.engine) + (f" {safe(info.version)}" if info.version else "")
            left += [("  ", "fg"), (model, "title")]
            version = [("  ", "fg"), (engine, "dim")]
        label = simulated_label(view.session, view.host)
        if label:
            right = [(f" {label} ", "badge")]
        if getattr(view.session, "recording", None) is not None:
            right += [(" ● REC ", "match")]
        if view.player is not None:
            right += [(" recording ", "match")]
        elif view.session.read_only:
            right += [(" read-only ", "match")]
        stall = view.store.stalls[-1] if view.store.stalls else None
        if stall is not None and time.time() - stall.t < STALL_SHOWN_S:
            right = [(f" tokpit stood still {figures.duration(stall.late_s)} ", "bad-bold"), *right]
        if row_width(left) + row_width(version) + row_width(right) < width:
            left += version
        return two_sided(left, right, width)

    def _state(self, width: int) -> Row:
        view, server = self.view, self.view.server
        host = view.host_state
        trouble = link_trouble(host.link if host else None)
        if trouble:
            return two_sided([(" ", "fg"), ("✗ ", "bad-bold"), (trouble, "bad")], [], width)
        if server is None:
            return [(" ", "fg"), ("no server selected", "dim")]
        if not server.alive and (step := self._starting(server.info.host)):
            return [(" ", "fg"), ("◐ starting", "warn-bold"), (f"  {safe(step)}", "dim")]
        if not server.alive:
            what = "the process has ended" if server.info.job is None else f"job {server.info.job.id} is over"
            return [(" ", "fg"), ("✗ gone", "bad-bold"), (f"  {what}; its log and last figures stay", "dim")]
        phase = phase_of(view, server)
        glyph, style = PHASES.get(phase, ("?", "dim"))
        left: list[Span] = [(f"{glyph} {safe(phase)}", style)]
        if server.phase and server.phase.detail and phase not in {"ready", "serving"}:
            left.append((f" {safe(server.phase.detail)}", "dim"))
        job = server.info.job
        if job is not None and job.waiting and job.reason:
            left.append((f" {safe(job.reason)}", "dim"))
        parts: list[Row] = [left]
        if server.info.started_at is not None and not (job is not None and job.waiting):
            parts.append([("up ", "dim"), (figures.duration(view.now() - server.info.started_at), "fg")])
        parts += [part for part in (self._findings(server.info.id), self._roofline(server)) if part]
        parts += [[(f"{label} ", "dim"), (value, "fg")] for label, value in self._facts()]
        return [(" ", "fg"), *fitting(parts, width - 2)[0]]

    def _starting(self, host: str) -> str:
        """How far a launch on the host has come; empty where none is under way."""
        running = (o for o in self.view.store.operations.values() if o.status == "running" and o.target == host)
        launch = next((o for o in running if o.kind in {"launch", "relaunch"}), None)
        return "" if launch is None else launch.steps[-1].label if launch.steps else launch.title

    def _findings(self, server_id: str) -> list[Span]:
        diagnosed = self.view.diagnosed.get(server_id)
        if diagnosed is None:
            return []
        grave = [f for f in diagnosed.findings if f.severity != "info"]
        worst = "bad" if any(f.severity == "error" for f in grave) else "warn" if grave else "good"
        return [("findings ", "dim"), (str(len(grave)), worst)]

    def _roofline(self, server: ServerState) -> list[Span]:
        diagnosed = self.view.diagnosed.get(server.info.id)
        steps = steps_per_s(self.view, server)
        if diagnosed is None or diagnosed.steps_per_s is None or steps is None:
            return []
        share = figures.percent(steps / diagnosed.steps_per_s)
        return [("steps ", "dim"), (f"{steps:.1f}/s", "fg"), (f" {share} of ceiling", "dim")]

    def _cap(self) -> object:
        server = self.view.server
        if server is None:
            return None
        series = server.series.get("max_running_reqs")
        known: object = series.last if series is not None else None
        if known is None:
            known = server.facts.get("max_running_reqs", server.info.settings.max_running)
        return f"{known:g}" if isinstance(known, (int, float)) else None

    def _facts(self) -> list[tuple[str, str]]:
        server = self.view.server
        if server is None:
            return []
        s = server.info.settings
        place = _place(server)
        process = [pair for pair in place if pair[0] == "pid"]
        pairs: list[tuple[str, object]] = [*(pair for pair in place if pair not in process), ("tp", s.tp)]
        method = s.spec_method.upper() if s.spec_method in {"mtp", "eagle", "eagle3"} else s.spec_method
        pairs += [(method or "", f"{s.spec_steps or '?'} steps" if method else None)]
        pairs += [("hicache", f"{s.hicache_gb:g} GB" if s.hicache_gb else None), ("cap", self._cap())]
        pairs += [("context", figures.compact(s.context_len)), ("quant", s.quantization), *process]
        return [(label, safe(value)) for label, value in pairs if value is not None and value != ""]


def _place(server: ServerState) -> list[tuple[str, object]]:
    """A process, a rank of several, or a batch job with its nodes and what its time limit leaves."""
    job = server.info.job
    if job is None:
        ranks = len(server.info.ranks)
        return [("pid", server.info.pid), ("rank", f"{server.info.rank} of {ranks}" if ranks else None)]
    more = f" +{len(job.nodes) - 1}" if len(job.nodes) > 1 else ""
    left = figures.duration(job.time_left_s) if job.time_left_s is not None and job.alive else None
    return [("job", job.id), ("on", f"{job.nodes[0]}{more}" if job.nodes else None), ("left", left)]
