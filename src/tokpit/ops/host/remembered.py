"""From what a host remembers to deployments: each piece is read by what the engines know of command lines. Pure."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tokpit.domain.settings import Settings
from tokpit.domain.text import mask_secrets
from tokpit.engines.flagkit.echo import read_echo
from tokpit.engines.flagkit.shelltext import Started, of_image, started_in
from tokpit.engines.registry import engines, env_prefixes
from tokpit.probes.compose import parse_compose
from tokpit.probes.deployments import Piece, parse_history
from tokpit.probes.units import parse_env_file, parse_unit_files


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A server that ran, or was made to run. `t`: UTC seconds of its start, or of the last trace of it."""

    source: str
    """`unit`, `journal`, `shell`, `tmux`, `docker`, `compose`, `script`, `log`, `tokpit`."""
    where: str
    engine: str
    settings: Settings
    t: float | None = None
    before: float | None = None
    """It was before that time, where `t` is not known: a history without times was last written then."""
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    image: str = ""
    state: str = ""
    version: str | None = None
    """What was running then, where a log says so."""
    version_now: str | None = None
    """What its environment holds now."""
    changed_since: bool = False
    """Its environment was installed anew after `t`: the version then is not the one now."""
    resolved: bool = False
    """The settings are all that the engine printed, its own choices included."""
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> float:
        """By what it is listed: its time, or the latest that it can have been."""
        return self.t if self.t is not None else self.before if self.before is not None else 0.0


def deployments(pieces: Sequence[Piece]) -> tuple[tuple[Deployment, ...], tuple[str, ...]]:
    """The deployments in time, oldest first, and remarks on places that hold none."""
    found: list[Deployment] = []
    remarks: list[str] = []
    for piece in pieces:
        match piece.kind:
            case "unit":
                found += _unit(piece, pieces)
            case "journal":
                found += _journal(piece)
            case "history":
                made, remark = _history(piece)
                found += made
                remarks += [remark] if remark else []
            case "tmux":
                found += _tmux(piece)
            case "docker":
                found += _docker(piece)
            case "compose":
                found += _compose(piece, pieces)
            case "script" if not piece.detail:
                found += [_of(started, "script", piece) for started in started_in(piece.text)]
            case "log":
                found += _log(piece)
    return tuple(sorted(_once(found), key=lambda one: one.order)), tuple(remarks)


def _once(found: Iterable[Deployment]) -> list[Deployment]:
    """The newest of those that say the same of the same place."""
    kept: dict[tuple[object, ...], Deployment] = {}
    for one in sorted(found, key=lambda one: one.order):
        kept[one.source, one.where, one.engine, one.argv or one.settings, one.image] = one
    return list(kept.values())


def _of(started: Started, source: str, piece: Piece, **more: Any) -> Deployment:
    fields: dict[str, Any] = {"t": piece.time, **more}
    return Deployment(
        source=source,
        where=piece.path,
        engine=started.engine,
        settings=started.settings,
        argv=started.argv,
        env=started.env,
        image=started.image,
        **fields,
    )


def _unit(piece: Piece, pieces: Sequence[Piece]) -> list[Deployment]:
    own = [other for other in pieces if other.detail == piece.path]
    unit = parse_unit_files(
        piece.path,
        piece.text,
        [(other.path, other.text) for other in own if other.kind == "dropin"],
        {other.path: other.text for other in own if other.kind == "envfile"},
    )
    started = started_in(unit.exec_start, unit.env)
    if not started:  # it starts a script
        started = tuple(one for other in own if other.kind == "script" for one in started_in(other.text, unit.env))
    journal = next((other for other in own if other.kind == "journal"), None)
    starts = _starts(journal)
    state = next((_state(other) for other in own if other.kind == "state"), "")
    notes = [*unit.notes, *([f"{len(starts)} starts in the journal"] if starts else [])]
    made = []
    for one in started[:1]:
        env = {**one.env, **{k: v for k, v in unit.env.items() if not k.startswith(("PATH", "HOME"))}}
        made.append(
            _of(
                msgspec.structs.replace(one, env=env),
                "unit",
                piece,
                t=starts[-1] if starts else piece.time,
                state=state,
                notes=(*notes, *_conflicts(one, env), *_failed(journal)),
            )
        )
    return made


def _conflicts(started: Started, env: dict[str, str]) -> list[str]:
    visible = env.get("CUDA_VISIBLE_DEVICES")
    ranks = (started.settings.tp or 1) * (started.settings.pp or 1)
    if visible is None or not visible.strip():
        return []
    count = len([part for part in visible.split(",") if part.strip()])
    return (
        [f"{ranks} ranks need {ranks} GPUs, and CUDA_VISIBLE_DEVICES={visible} shows {count}"] if count < ranks else []
    )


def _state(piece: Piece) -> str:
    facts = dict(line.partition("=")[::2] for line in piece.text.splitlines() if "=" in line)
    words = [facts.get("ActiveState", ""), facts.get("UnitFileState", "")]
    if facts.get("Result", "success") not in ("success", ""):
        words.append(f"result {facts['Result']}")
    return ", ".join(word for word in words if word)


_JOURNAL = re.compile(r"^(\d{9,11}\.\d+) \S+ (\S+?)(?:\[\d+\])?: (.*)$")


def _starts(journal: Piece | None) -> list[float]:
    lines = (_JOURNAL.match(line) for line in (journal.text.splitlines() if journal is not None else ()))
    return [float(m[1]) for m in lines if m is not None and m[2] == "systemd" and m[3].startswith("Started ")]


def _failed(journal: Piece | None) -> list[str]:
    """The last way in which the unit ended, as systemd put it."""
    if journal is None:
        return []
    ends = [m[3] for line in journal.text.splitlines() if (m := _JOURNAL.match(line)) and "process exited" in m[3]]
    return [f"last end: {ends[-1].partition(': ')[2] or ends[-1]}"] if ends else []


def _journal(piece: Piece) -> list[Deployment]:
    return _echoes(
        "journal", piece, ((m[3], float(m[1])) for line in piece.text.splitlines() if (m := _JOURNAL.match(line)))
    )


_STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def _log(piece: Piece) -> list[Deployment]:
    def timed() -> Iterator[tuple[str, float | None]]:
        for line in piece.text.splitlines():
            stamp = _STAMP.match(line)
            try:
                # Servers seldom say their zone; a container's is UTC, and so is that of most hosts.
                at = float(calendar.timegm(time.strptime(stamp[1], "%Y-%m-%d %H:%M:%S"))) if stamp else None
            except ValueError:
                at = None
            yield line, at if at is not None else piece.time

    return _echoes("log", piece, timed())


def _tmux(piece: Piece) -> list[Deployment]:
    lines = piece.text.splitlines()
    made = _echoes("tmux", piece, ((line, piece.time) for line in lines))
    for line in lines:
        # What follows the prompt; a captured screen shows both in one line.
        command = re.split(r"(?:^|\s)[$#%❯➜>] ", line, maxsplit=1)[-1]
        made += [_of(started, "tmux", piece) for started in started_in(command)]
    return made


def _echoes(source: str, piece: Piece, lines: Iterable[tuple[str, float | None]]) -> list[Deployment]:
    made = []
    versions: dict[str, str] = {}
    for line, at in lines:
        for known in engines():
            said = re.search(known.traces.version_line, line) if known.traces.version_line else None
            if said is not None:
                versions[known.name] = said[1]
        echo = read_echo(line)
        if echo is None:
            continue
        made.append(
            Deployment(
                source=source,
                where=piece.path,
                engine=echo.engine,
                settings=echo.settings,
                t=at,
                resolved=echo.resolved,
                version=versions.get(echo.engine),
            )
        )
    return made


def _history(piece: Piece) -> tuple[list[Deployment], str]:
    lines, total = parse_history(piece.text)
    made = []
    for line in lines:
        for started in started_in(line.text):
            later = next((other.time for other in lines if other.number > line.number and other.time), piece.time)
            where = msgspec.structs.replace(piece, path=f"{piece.path}:{line.number}")
            made.append(_of(started, "shell", where, t=line.time, before=None if line.time else later))
    if made:
        return made, ""
    shown = "; ".join(mask_secrets(line.text[:80]) for line in lines[-3:])
    return [], (
        f"{piece.path}: {total} lines, none starts a server"
        + (f"; {len(lines)} look at one ({shown})" if lines else "")
    )


def _docker(piece: Piece) -> list[Deployment]:
    try:
        page = json.loads(piece.text)
    except ValueError:
        return []
    made = []
    for one in page if isinstance(page, list) else []:
        config = one.get("Config") or {}
        image = str(config.get("Image") or "")
        entry, words = (tuple(str(w) for w in config.get(key) or ()) for key in ("Entrypoint", "Cmd"))
        env = dict(str(pair).partition("=")[::2] for pair in config.get("Env") or ())
        kept = _kept(env)
        started = of_image(image, (*entry, *words), kept) or of_image(image, words, kept)
        if started is None:
            continue
        state = one.get("State") or {}
        status = str(state.get("Status") or "")
        if status == "exited":
            status += f" {state.get('ExitCode')}" + (", out of memory" if state.get("OOMKilled") else "")
        name = str(one.get("Name") or one.get("Id") or "").lstrip("/")
        where = msgspec.structs.replace(piece, path=f"{piece.path} {name}")
        made.append(_of(started, "docker", where, t=_iso(str(state.get("StartedAt") or "")), state=status))
    return made


def _kept(env: Mapping[str, str]) -> dict[str, str]:
    """What of a container's environment a server reads."""
    return {k: v for k, v in env.items() if k.startswith(("CUDA_V", "HF_", "NCCL_", *env_prefixes()))}


def _compose(piece: Piece, pieces: Sequence[Piece]) -> list[Deployment]:
    env: dict[str, str] = {}
    for other in pieces:
        if other.kind == "envfile" and other.detail == piece.path:
            env |= parse_env_file(other.path, other.text)[0]
    made = []
    for service in parse_compose(piece.text, env):
        started = of_image(service.image, service.words, _kept(service.env))
        if started is not None:
            where = msgspec.structs.replace(piece, path=f"{piece.path} {service.name}")
            made.append(_of(started, "compose", where))
    return made


def _iso(text: str) -> float | None:
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", text)
    if match is None or match[1].startswith("0001"):
        return None
    return float(calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")))
