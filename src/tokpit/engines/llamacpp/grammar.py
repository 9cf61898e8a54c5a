"""The log grammar of llama-server: `M.SS.mmm.uuu LEVEL` heads, slot lines, timings, drafts, start-up, failures."""

from __future__ import annotations

import re

from tokpit.domain.records import LogRecord, Value
from tokpit.engines.llamacpp.sampling import Sampler
from tokpit.engines.logkit.access import access
from tokpit.engines.logkit.base import TEXT_LIMIT, Head, LineGrammar
from tokpit.engines.logkit.fold import opens
from tokpit.engines.logkit.prefix import strip_outer
from tokpit.engines.logkit.table import Found, Inside, Start, Table
from tokpit.engines.logkit.values import Convert, converter, real

_HEAD = re.compile(r"(?:\[(\d{1,6})\] )?\[?(\d{1,7}\.\d\d\.\d{3}\.\d{3})\]? ([IWED]) ?")
_LEVELS = {"I": "info", "W": "warning", "E": "error", "D": "debug"}
_SLOT = re.compile(
    r"slot {1,12}(?P<function>\S{1,40}?): id {1,4}(?P<slot>\d{1,9}) \| task (?P<task>-?\d{1,17}) \| ?(?P<message>.*)"
)
_N = r"[-\d.naif]+"
_TIMING = (
    rf" =\s*(?P<{{0}}_ms>{_N}) ms /\s*(?P<{{0}}_tokens>\d+) (?:tokens|runs) +\(\s*(?P<ms_per_token>{_N}) ms per token,"
)
_TIMING += rf"\s*(?P<{{0}}_tps>{_N}) tokens per second\)"
_FIGURES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("prompt eval time", "prompt_timing", re.compile("prompt eval time" + _TIMING.replace("{0}", "prompt"))),
    ("eval time", "gen_timing", re.compile("eval time" + _TIMING.replace("{0}", "gen"))),
    (
        "draft acceptance",
        "draft_summary",
        re.compile(
            rf"draft acceptance(?: rate)? =\s*(?P<accept_rate>{_N}) \(\s*(?P<accepted_tokens>\d+) accepted /"
            rf"\s*(?P<drafted_tokens>\d+) generated\)(?:, mean len =\s*(?P<accept_len>{_N}))?"
        ),
    ),
    (
        "tg_3s",
        "live_rate",
        re.compile(rf"n_gen =\s*(?P<gen_tokens>\d+), tg =\s*(?P<gen_tps>{_N}) t/s, tg_3s =\s*(?P<gen_tps_3s>{_N}) t/s"),
    ),
    (
        "prompt processing, n_tokens",
        "prompt_progress",
        re.compile(
            r"prompt processing, n_tokens =\s*(?P<prompt_tokens_done>\d+)(?:.*?progress = (?P<progress>[\d.]+))?"
        ),
    ),
)
_NAMES: dict[str, tuple[tuple[str, Convert], ...]] = {
    # llama-server prints its progress as a fraction already.
    kind: tuple((name, real if name == "progress" else converter(name)) for name in pattern.groupindex)
    for _, kind, pattern in _FIGURES
}

TABLE = Table(
    (
        Start("failure.killed", "Killed", r"\s*$"),
        Start("failure.argparse", "error: invalid argument: ", r"(?P<message>.*)"),
        Start("milestone.version", "build: ", r"(?P<engine_version>\d+ \(\w+\))"),
    ),
    (
        Inside("milestone.ready", "server is listening on ", r"server is listening on (?P<url>\S+)"),
        Inside("milestone.http_up", "HTTP server is listening", r"hostname: (?P<host>[^,\s]+), port: (?P<port>\d+)"),
        Inside("milestone.ready", ": listening on ", r": listening on (?P<url>\S+)"),
        Inside("milestone.loaded", "model loaded"),
        Inside("milestone.load_begin", "loading model", r"(?<!error )loading model"),
        Inside(
            "milestone.slots",
            "initializing",
            r"initializing(?:, n_slots = (?P<n_slots>\d+), n_ctx_slot = (?P<n_ctx_slot>\d+)"
            r"(?:, kv_unified = '?(?P<kv_unified>\w+)'?)?| slots, n_slots = (?P<n_slots_old>\d+))",
        ),
        Inside("milestone.idle", "all slots are idle"),
        Inside(
            "failure.port",
            "couldn't bind HTTP server socket",
            r"couldn't bind HTTP server socket(?:, hostname: (?P<host>[^,\s]+), port: (?P<port>\d+))?",
        ),
        Inside("failure.load", "failed to load", r"failed to load (?:draft )?model"),
        Inside("failure.load", "exiting due to model loading error"),
        Inside("failure.ptx", "unsupported toolchain"),
        Inside("failure.oom", "out of memory", r"(?:cudaMalloc failed: |CUDA error: )?out of memory"),
        Inside("failure.oom", "failed to allocate", r"failed to allocate \S+ buffer(?: of size (?P<requested>\d+))?"),
        Inside("failure.cuda", "CUDA error"),
        Inside("failure.argparse", "error: ", r"^error: (?P<message>.*)"),
        Inside("failure.argparse", "the argument has been removed"),
        Inside("failure.abort", "GGML_ASSERT"),
    ),
    (
        "listening",
        "model",
        "initializing",
        "idle",
        "couldn't bind",
        "failed to",
        "rror",
        "emory",
        "toolchain",
        "argument",
        "GGML_ASSERT",
    ),
)


class LlamaGrammar(LineGrammar):
    """See engines.base.Grammar. A slot line with a head is `slot_line` and carries its figures as fields as well."""

    def __init__(self) -> None:
        super().__init__()
        self._sampler = Sampler()

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Values after this record: see sampling.Sampler."""
        return self._sampler.sample(record)

    def _fast(self, text: str, start: int, line: str) -> LogRecord | None:
        """Lines with the server's own head, which is most of a log."""
        match = _HEAD.match(text, start)
        if match is None:
            return None
        port, t, level = match.groups()
        fields: dict[str, Value] = {"t": t, "level": level}
        if port is not None:
            fields["port"] = int(port)
        end = match.end()
        message = text[end:]
        if message.startswith("slot "):
            slot = _SLOT.match(message)
            if slot is None or message[-1:] == ":":
                return None
            _of_slot(slot, fields, headed=True)
            return LogRecord(self._count, "slot_line", message, fields, {}, (line,), _LEVELS[level])
        if message.startswith("srv  log_server_r: "):
            request = _REQUEST.match(message, 19)
            if request is None or message[-1:] == ":":
                return None
            fields["method"], fields["path"], fields["client"], status = request.groups()
            fields["status"] = int(status)
            return LogRecord(self._count, "access", message, fields, {}, (line,), _LEVELS[level])
        head = Head("", fields, _LEVELS[level], message)
        return None if opens(message) else self._plain(head, (line,))

    @staticmethod
    def _headed(match: re.Match[str], text: str) -> Head:
        port, t, level = match.groups()
        fields: dict[str, Value] = {"t": t, "level": level}
        if port is not None:
            fields["port"] = int(port)
        return Head("", fields, _LEVELS[level], text[match.end() :])

    def _head(self, text: str) -> Head:
        match = _HEAD.match(text)
        if match is None and not text.startswith(_OWN):
            text = strip_outer(text)[1]
            match = _HEAD.match(text)
        if match is None:
            return Head("", {}, "", text)
        return self._headed(match, text)

    def _classify(self, head: Head, extras: dict[str, str]) -> Found | None:
        message = head.message[:TEXT_LIMIT]
        slot = _SLOT.match(message) if message.startswith("slot") else None
        fields: dict[str, Value] = {}
        if slot is not None:
            return Found(_of_slot(slot, fields, headed="t" in head.fields), fields)
        if message.lstrip().startswith(_BARE):
            kind = _figures(message, fields)
            if kind is not None:
                return Found(kind, fields)
        if "log_server_r" in message or message.startswith("request: "):
            return _request(message)
        found = access(message)
        return Found("access", found) if found is not None else TABLE.find(message)

    def _failure(self, message: str) -> Found | None:
        return TABLE.find_inside(message[:TEXT_LIMIT])


_BARE = ("prompt eval time", "eval time", "draft acceptance", "n_gen", "prompt processing")
_OWN = ("slot ", "srv  ", "main:", "llama_", "ggml_", "load_")
_REQUEST = re.compile(r"request: (?P<method>[A-Z]+) (?P<path>\S+) (?P<client>\S+) (?P<status>\d{3})")


def _request(message: str) -> Found | None:
    match = _REQUEST.search(message)
    if match is None:
        return None
    return Found("access", {**match.groupdict(), "status": int(match["status"])})


def _of_slot(slot: re.Match[str], fields: dict[str, Value], *, headed: bool) -> str:
    """Add what a slot says to `fields`; its kind, which is that of its figures where the line has no head."""
    function, number, task, rest = slot.groups()
    fields["slot"], fields["task"] = int(number), int(task)
    kind = _figures(rest, fields) if " = " in rest else None
    if kind is not None and not headed:
        return kind
    fields["function"], fields["message"] = function, rest.strip()
    return "slot_line"


def _figures(message: str, fields: dict[str, Value]) -> str | None:
    """Kind and figures of a slot's message; None where it carries none."""
    for need, kind, pattern in _FIGURES:
        if need not in message:
            continue
        match = pattern.search(message)
        if match is None:
            continue
        for (name, convert), text in zip(_NAMES[kind], match.groups(), strict=True):
            if text is not None:
                fields[name] = convert(text)
        return kind
    return None


def new() -> LlamaGrammar:
    """A fresh reader for one llama-server log."""
    return LlamaGrammar()
