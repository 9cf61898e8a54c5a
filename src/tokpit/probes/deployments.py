"""Where a host remembers servers that ran before: units and their journal, shell histories, tmux, containers, compose
files, scripts, logs. One read-only script, and its output in pieces.

Sources: systemctl(1), journalctl(1) (`-o short-unix`), bash(1) HISTTIMEFORMAT, zshoptions(1) EXTENDED_HISTORY, docker
inspect's reference.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from tokpit.domain.text import sanitize
from tokpit.probes.searched import Searched, either

BUDGET_S = 10
UNIT_FOLDERS = (
    *("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"),
    *("/run/systemd/transient", "$HOME/.config/systemd/user", "$HOME/.local/share/systemd/user", "/etc/systemd/user"),
)
SCRIPT_FOLDERS = ("$HOME", "/opt", "/srv", "/data", "/workspace")
LOG_FOLDERS = ("$HOME", "$HOME/logs", "/var/log", "/tmp", "/data", "/workspace", "/opt", "/srv", "/logs")  # noqa: S108 - read only


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was read: `unit`, `dropin`, `envfile`, `state`, `journal`, `history`, `tmux`, `docker`, `compose`,
    `script`, `log`. `time`: UTC seconds when the file was last written; None: not told."""

    kind: str
    path: str
    time: float | None = None
    detail: str = ""
    """`unit`: `user` or `system`; `dropin`, `envfile`, `state`, `journal`: the path of the unit (or compose file)."""
    text: str = ""


class HistoryLine(msgspec.Struct, frozen=True):
    """A line of a shell history that names an engine or a tool around it. `time`: UTC seconds if the shell kept it."""

    number: int
    time: float | None
    text: str


_SCRIPT = r"""
began=$(date +%%s); tab=$(printf '\t')
over() { [ $(($(date +%%s) - began)) -ge %(budget)d ]; }
limit=; command -v timeout >/dev/null 2>&1 && limit='timeout %(budget)d'
W='%(words)s'
age() { stat -c %%Y -- "$1" 2>/dev/null || stat -f %%m -- "$1" 2>/dev/null; }
piece() { printf '\n@@tokpit-piece\t%%s\t%%s\t%%s\t%%s\n' "$1" "$2" "$3" "$4"; }
for d in %(units)s; do
  case $d in "$HOME"/*|*/systemd/user) who=user flag=--user ;; *) who=system flag= ;; esac
  [ -d "$d" ] || continue
  { grep -lsiE "$W" "$d"/*.service "$d"/*.service.d/*.conf | sed 's,\.d/[^/]*$,,'
    grep -lsE '^ExecStart=.*/' "$d"/*.service | xargs -r grep -lsE '^ExecStart=.*(\.sh|/s?h |/opt/|/home/|/root/|/srv/)'
  } 2>/dev/null | sort -u | while IFS= read -r f; do
    [ -f "$f" ] && [ ! -L "$f" ] || continue
    hit=; grep -qsiE "$W" "$f" "$f".d/*.conf && hit=1
    for s in $(sed -n 's/^ExecStart=[-@:+!]*//p' "$f" | tr ' ' '\n' | grep '^/' | head -n 8); do
      [ -f "$s" ] && [ "$(wc -c <"$s")" -lt 65536 ] && head -c 2 "$s" | grep -q '#!' && grep -qiE "$W" "$s" && {
        hit=1; piece script "$s" "$(age "$s")" "$f"; cat "$s"; }
    done 2>/dev/null
    [ -n "$hit" ] || continue
    piece unit "$f" "$(age "$f")" $who; head -c 65536 "$f"
    for c in "$f".d/*.conf; do [ -f "$c" ] && { piece dropin "$c" "$(age "$c")" "$f"; head -c 16384 "$c"; }; done
    sed -n 's/^EnvironmentFile=-\{0,1\}//p' "$f" "$f".d/*.conf 2>/dev/null | while IFS= read -r e; do
      [ -f "$e" ] && [ -r "$e" ] && { piece envfile "$e" "$(age "$e")" "$f"; head -c 16384 "$e"; }; done
    n=${f##*/}
    export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}
    if command -v systemctl >/dev/null 2>&1; then
      piece state "$n" "" "$f"
      systemctl $flag show -p ActiveState,SubState,UnitFileState,MainPID,NRestarts,ExecMainStartTimestamp,Result "$n" \
        2>/dev/null
    fi
    if command -v journalctl >/dev/null 2>&1; then
      piece journal "$n" "" "$f"
      $limit journalctl $flag -u "$n" -o short-unix --no-pager -q -n 20000 2>/dev/null |
        grep -aE ' systemd\[[0-9]+\]: |%(echoes)s' | tail -n 80 | cut -c 1-60000
    fi
  done
done
for f in "$HOME/.bash_history" "$HOME/.zsh_history" "$HOME/.histfile" "$HOME/.history" "$HOME/.ash_history" \
  "$HOME/.local/share/fish/fish_history"; do
  [ -f "$f" ] && [ -r "$f" ] || continue
  piece history "$f" "$(age "$f")" ""
  tail -c 4000000 "$f" | awk -v w="$W|nvidia-smi|systemctl|journalctl|docker|podman|tmux|\\\\.sh|launch_server" '
    function tell(l, t) { total++; if (tolower(l) ~ w) printf "%%d\t%%s\t%%s\n", total, t, substr(l, 1, 8000) }
    { l = $0
      while (l ~ /\\$/ && (getline n) > 0) l = substr(l, 1, length(l) - 1) " " n
      if (l ~ /^#[0-9][0-9]*$/) { t = substr(l, 2); next }
      if (l ~ /^: [0-9]+:[0-9]+;/) { split(l, a, ":"); t = a[2] + 0; sub(/^: [0-9]+:[0-9]+;/, "", l) }
      if (l ~ /^- cmd: /) { fish = substr(l, 8); next }
      if (fish != "" && l ~ /^  when: /) { tell(fish, substr(l, 9)); fish = ""; next }
      if (l ~ /^  (paths|- )/ || l == "") next
      tell(l, t); t = "" }
    END { printf "total\t\t%%d\n", total }'
done
if command -v tmux >/dev/null 2>&1; then
  tmux list-panes -a -F "#{pane_id}${tab}#{session_name}:#{window_index}.#{pane_index}${tab}#{session_created}" \
    2>/dev/null | while IFS=$tab read -r id name made; do
    over && break
    piece tmux "$name" "$made" ""
    tmux capture-pane -p -J -S -3000 -t "$id" 2>/dev/null | grep -aiE "$W|%(echoes)s" | tail -n 40 | cut -c 1-60000
  done
fi
for tool in docker podman; do
  command -v $tool >/dev/null 2>&1 || continue
  ids=$($limit $tool ps -a --no-trunc --format '{{.ID}} {{.Image}} {{.Names}} {{.Command}}' 2>/dev/null |
    grep -iE "$W" | cut -d ' ' -f 1 | head -n 30)
  [ -n "$ids" ] && { piece docker $tool "" ""; $limit $tool inspect $ids 2>/dev/null; }
done
scripts=
for d in %(scripts)s; do [ -d "$d" ] && scripts="$scripts $d"; done
[ -n "$scripts" ] && $limit find $scripts -maxdepth 3 \( -name node_modules -o -name .git -o -name site-packages \
  -o -name .cache -o -name '*venv*' -o -name miniconda3 -o -name '.pyenv' \) -prune -o -type f -size -64k \
  \( -name '*.sh' -o -name '*.bash' -o -name 'Makefile' -o -name 'justfile' -o -name 'compose*.y*ml' \
  -o -name 'docker-compose*.y*ml' \) -print 2>/dev/null | head -n 400 |
  while IFS= read -r f; do
    over && break
    case $f in *.yml|*.yaml)
      grep -qiE "$W" "$f" 2>/dev/null || continue
      piece compose "$f" "$(age "$f")" ""; cat "$f"
      e=${f%%/*}/.env; [ -f "$e" ] && [ -r "$e" ] && { piece envfile "$e" "$(age "$e")" "$f"; head -c 16384 "$e"; }
      continue ;;
    esac
    grep -qE '%(launches)s' "$f" 2>/dev/null && { piece script "$f" "$(age "$f")" ""; cat "$f"; }
  done
logs=
for d in %(logs)s; do [ -d "$d" ] && logs="$logs $d"; done
[ -n "$logs" ] && $limit find $logs "$HOME/.local/state/tokpit/logs" -maxdepth 3 \( -name node_modules -o -name .git \
  -o -name site-packages -o -name .cache \) -prune -o -type f -size +0 \( -name '*.log' -o -name '*.out' \
  -o -name '*.log.[0-9]' \) -print 2>/dev/null | sort -u | head -n 300 | while IFS= read -r f; do
    over && break
    found=$(head -c 2000000 "$f" 2>/dev/null | grep -a -m 4 -E '%(echoes)s' | cut -c 1-60000)
    [ -n "$found" ] && { piece log "$f" "$(age "$f")" ""; printf '%%s\n' "$found"; }
  done
printf '\n@@tokpit-piece\tend\t%%s\t\t\n' "$(over && echo cut)"
"""


def deployments_script(
    searched: Searched,
    *,
    units: Sequence[str] | None = None,
    scripts: Sequence[str] | None = None,
    logs: Sequence[str] | None = None,
    budget_s: int = BUDGET_S,
) -> str:
    """POSIX sh that prints what `parse_pieces` reads; folders are the usual ones unless given."""

    def words(given: Sequence[str] | None, usual: Sequence[str]) -> str:
        return shlex.join(given) if given is not None else " ".join(usual)

    return _SCRIPT % {
        "budget": budget_s,
        "units": words(units, UNIT_FOLDERS),
        "scripts": words(scripts, SCRIPT_FOLDERS),
        "logs": words(logs, LOG_FOLDERS),
        "words": either(searched.words),
        "launches": either(searched.launches),
        "echoes": either(searched.echoes),
    }


def parse_pieces(output: str) -> tuple[tuple[Piece, ...], bool]:
    """The pieces, and whether the search was cut short. Text is safe to show."""
    pieces: dict[tuple[str, str, str], Piece] = {}
    complete = False
    for block in output.split("\n@@tokpit-piece\t")[1:]:
        head, _, body = block.partition("\n")
        cells = head.split("\t")
        if len(cells) < 4:
            continue
        kind, path, age, detail = (sanitize(cell) for cell in cells[:4])
        if kind == "end":
            complete = path != "cut"
            continue
        text = "\n".join(sanitize(line) for line in body.removesuffix("\n").split("\n"))
        piece = Piece(kind=kind, path=path, time=float(age) if age.isdecimal() else None, detail=detail, text=text)
        pieces.setdefault((kind, path, detail if kind != "script" else ""), piece)
    return tuple(pieces.values()), not complete


def parse_history(text: str) -> tuple[tuple[HistoryLine, ...], int]:
    """The lines of a shell history that were kept, and how many it has in all."""
    lines = []
    total = 0
    for row in text.splitlines():
        number, tab, rest = row.partition("\t")
        stamp, tab2, command = rest.partition("\t")
        if number == "total" and command.isdecimal():
            total = int(command)
        elif tab and tab2 and number.isdecimal():
            at = float(stamp) if stamp.isdecimal() and re.fullmatch(r"\d{9,11}", stamp) else None
            lines.append(HistoryLine(int(number), at, command))
    return tuple(lines), total
