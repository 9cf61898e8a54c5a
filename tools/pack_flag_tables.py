"""Make an engine's flag table from a folder of schema dumps: one compact JSON file, one flag a line.

    python tools/pack_flag_tables.py FOLDER ENGINE OUTPUT

FOLDER holds `ENGINE-VERSION.json` files: what `tokpit.engines.flagkit.host_dump` prints on a host, or a JSON array of
such rows {flags, dest, type, default, choices, nargs}, or of {flags, arg, default} rows read from a `--help` text.

The table keeps, for each flag, its runs of versions with equal attributes; a run lists only what differs from the
run before it. Declared types become kinds (`tokpit.engines.flagkit.kinds`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tokpit.engines import version as versions
from tokpit.engines.flagkit.dump import MARK
from tokpit.engines.flagkit.kinds import kind_of
from tokpit.engines.llamacpp import helptext

Row = dict[str, Any]
ATTRIBUTES = ("flags", "dest", "type", "default", "choices", "nargs")


def load(folder: Path, engine: str) -> list[tuple[str, list[Row]]]:
    """Dumps by version, oldest first."""
    found = {path.stem.removeprefix(f"{engine}-"): path for path in folder.glob(f"{engine}-*.json")}
    names = sorted((name for name in found if versions.parse(name)), key=lambda name: versions.parse(name).target())
    return [(name, rows_of(found[name].read_text(encoding="utf-8"))) for name in names]


def rows_of(text: str) -> list[Row]:
    """Rows of one dump: a JSON array, or the line that the host script prints."""
    if MARK in text:
        return json.loads(text[text.rindex(MARK) + len(MARK) :])["rows"]
    return json.loads(text)


def from_help(row: Row) -> Row:
    """A row read from help text in the words of the other dumps."""
    spec = helptext.spec(row["flags"], row["arg"], row["default"])
    return json.loads(msgspec.json.encode(spec))


def ordered(flags: list[str]) -> list[str]:
    """Long options first, then negations, then short ones: the first one names the flag; positionals as they are."""
    return list(helptext.ordered(flags)) if flags[0].startswith("-") else flags


def plain(value: Any) -> Any:
    """Defaults that only the running engine can evaluate become one word."""
    return "<computed>" if "<" in json.dumps(value) else value


def normalise(dumps: list[tuple[str, list[Row]]]) -> list[tuple[str, dict[str, Row]]]:
    """Rows by first flag, with kinds; what one reading hides (wrapped converters) is taken from its neighbours."""
    raw: list[tuple[bool, dict[str, Row]]] = []
    for _, rows in dumps:
        rows = [from_help(row) if "arg" in row else row for row in rows]
        read_from_source = any("[" in str(row["type"]) or "|" in str(row["type"]) for row in rows)
        table = {}
        for row in rows:
            declared, choices = str(row["type"]), row["choices"]
            open_union = "| str" in declared or declared.startswith("str |")
            if choices and (open_union or any("<" in str(choice) for choice in choices)):
                choices = None
            flags = ordered(row["flags"])
            table[flags[0]] = {
                "flags": flags,
                "dest": row["dest"],
                "type": kind_of(row["type"], row["nargs"]),
                "default": plain(row["default"]),
                "choices": choices,
                "nargs": row["nargs"],
                "is_list": any(part.strip().startswith(("list[", "List[", "set[")) for part in declared.split("|")),
            }
        raw.append((read_from_source, table))
    for index, (read_from_source, table) in enumerate(raw):
        for key, row in table.items():
            if read_from_source and row["nargs"] != 0 and (row["is_list"] or row["nargs"] is None):
                guess = row["nargs"] or ("+" if row["is_list"] else None)
                row["nargs"] = _nearest(
                    raw, index, key, "nargs", lambda nargs: nargs != 0, parsers_only=True, otherwise=guess
                )
                if row["is_list"] and row["nargs"] is None:
                    row["type"] = _nearest(
                        raw, index, key, "type", lambda kind: True, parsers_only=True, otherwise="str"
                    )
            if row["type"] == "opaque":
                near = _nearest(raw, index, key, "type", lambda kind: kind != "opaque")
                row["type"] = {"int": "human", None: "str"}.get(near, near)
            elif read_from_source and row["type"] == "int":
                near = _nearest(raw, index, key, "type", lambda kind: kind != "opaque", parsers_only=True)
                if near in ("human", "human-auto"):
                    row["type"] = near
    return [(version, table) for (version, _), (_, table) in zip(dumps, raw, strict=True)]


def _nearest(
    raw: Any, index: int, key: str, name: str, wanted: Any, *, parsers_only: bool = False, otherwise: Any = None
) -> Any:
    near = sorted(range(len(raw)), key=lambda other: (abs(other - index), -other))
    for other in near:
        source, table = raw[other]
        if other != index and key in table and wanted(table[key][name]) and not (parsers_only and source):
            return table[key][name]
    return otherwise


def pack(tables: list[tuple[str, dict[str, Row]]]) -> list[list[Any]]:
    """Runs of equal attributes a flag: [first version index, last version index, changed attributes]."""
    keys = dict.fromkeys(key for _, table in tables for key in table)
    out = []
    for key in keys:
        runs: list[list[Any]] = []
        before: Row = dict.fromkeys(ATTRIBUTES)
        for index, (_, table) in enumerate(tables):
            row = table.get(key)
            if row is None:
                continue
            change = {name: row[name] for name in ATTRIBUTES if row[name] != before[name]}
            if runs and runs[-1][1] == index - 1 and not change:
                runs[-1][1] = index
            else:
                runs.append([index, index, change])
            before = row
        out.append(runs)
    return out


def main(argv: list[str]) -> int:
    """Entry point."""
    folder, engine, output = Path(argv[0]), argv[1], Path(argv[2])
    dumps = load(folder, engine)
    if not dumps:
        sys.stderr.write(f"no {engine}-VERSION.json in {folder}\n")
        return 1
    lines = [json.dumps(runs, ensure_ascii=False, separators=(",", ":")) for runs in pack(normalise(dumps))]
    head = json.dumps([version for version, _ in dumps])
    output.write_text('{"versions":' + head + ',"flags":[\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    sys.stderr.write(f"{engine}: {len(dumps)} versions, {len(lines)} flags, {output.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
