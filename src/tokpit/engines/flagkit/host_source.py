"""The flag schema of an SGLang or vLLM read from its source files, without importing it. Part of `host_dump`.

Standard library only, python 3.9 or later: this text is sent to hosts. What only the running engine can compute
(some defaults, some lists of choices) stays unknown.
"""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def plain(value: Any) -> Any:
    """JSON data as it is; everything else as text in angle brackets."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [plain(item) for item in sorted(value, key=str)]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return "<computed>"


def row(flags: list[str], dest: str, kind: Any, default: Any, choices: Any, *, nargs: Any, hidden: bool = False) -> Row:
    """One schema row."""
    return {
        "flags": flags,
        "dest": dest,
        "type": kind,
        "default": plain(default),
        "choices": None if choices is None else [str(plain(choice)) for choice in choices],
        "nargs": nargs,
        "hidden": hidden,
    }


class Sources:
    """Parsed files with their constants and annotated class fields, enough to evaluate simple declarations."""

    def __init__(self, paths: list[Path]) -> None:
        self.trees = [ast.parse(path.read_text(encoding="utf-8", errors="replace")) for path in paths if path.is_file()]
        self.constants: dict[str, Any] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        for tree in self.trees:
            for node in tree.body:
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                    self.constants[node.targets[0].id] = self.value(node.value)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                    self.constants[node.target.id] = self.value(node.value)
                elif isinstance(node, ast.ClassDef):
                    found = self.fields.setdefault(node.name, {})
                    for item in node.body:
                        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                            found[item.target.id] = (item.annotation, item.value)

    def value(self, node: Any) -> Any:
        """A literal, a known constant, or text in angle brackets."""
        if node is None:
            return None
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            pass
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self.constants[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
            left, right = self.value(node.left), self.value(node.right)
            try:
                return left + right if isinstance(node.op, ast.Add) else left * right
            except TypeError:
                return "<computed>"
        if isinstance(node, (ast.List, ast.Tuple)):
            out = []
            for item in node.elts:
                inner = self.value(item.value if isinstance(item, ast.Starred) else item)
                out += inner if isinstance(item, ast.Starred) and isinstance(inner, list) else [inner]
            return out
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).split(".")[-1] == "Literal":
            return self.literal(node)
        return "<computed>"

    def literal(self, node: ast.Subscript) -> list[Any]:
        """The values of Literal[...], nested ones included."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        out: list[Any] = []
        for item in items:
            got = self.value(item)
            out += got if isinstance(got, list) else [got]
        return out

    def choices(self, annotation: Any) -> Any:
        """The closed list of an annotation: Literal, an alias of one, or a union with one; none if any text will do."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(annotation, ast.Name):
            got = self.constants.get(annotation.id)
            return got if isinstance(got, list) and got and all(isinstance(item, (str, int)) for item in got) else None
        if isinstance(annotation, ast.Subscript):
            head = ast.unparse(annotation.value).split(".")[-1]
            if head == "Literal":
                return self.literal(annotation)
            if head in ("Optional", "Annotated"):
                first = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
                return self.choices(first)
        if isinstance(annotation, ast.BinOp) and not re.search(r"\bstr\b", ast.unparse(annotation)):
            return self.choices(annotation.left) or self.choices(annotation.right)
        return None

    def default(self, node: Any) -> Any:
        """A field's default, `field(default=...)` and `Field(...)` included."""
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("field", "Field"):
            given = keywords(node)
            if "default" in given or node.args:
                return self.value(given.get("default", node.args[0] if node.args else None))
            made = given.get("default_factory")
            text = "" if made is None else ast.unparse(made)
            known: dict[str, Any] = {"list": [], "set": [], "dict": {}, "": None}
            return self.value(made.body) if isinstance(made, ast.Lambda) else known.get(text, "<computed>")
        return self.value(node)

    def calls(self, name: str) -> Iterator[tuple[ast.Call, list[str]]]:
        """Calls of a method with at least one text argument: (call, texts)."""
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                    texts = [
                        item.value
                        for item in node.args
                        if isinstance(item, ast.Constant) and isinstance(item.value, str)
                    ]
                    if texts:
                        yield node, texts


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """Keyword arguments by name, without `**spread`."""
    return {item.arg: item.value for item in call.keywords if item.arg}


def closed(choices: Any) -> Any:
    """A list of choices, or None where a part of it is not known."""
    return choices if isinstance(choices, list) and "<computed>" not in choices else None


def destination(flags: list[str]) -> str:
    """The attribute argparse derives from option strings."""
    return next((flag for flag in flags if flag.startswith("--")), flags[0]).lstrip("-").replace("-", "_")


def both_ways(flags: list[str], action: Any) -> list[str]:
    """Option strings with `--no-x` where the action is BooleanOptionalAction."""
    if action is not None and ast.unparse(action).endswith("BooleanOptionalAction"):
        return flags + ["--no-" + flag[2:] for flag in flags if flag.startswith("--")]
    return flags


def sglang_sources(root: Path) -> list[Row]:
    """SGLang: add_argument calls in server_args.py, and fields annotated A[type, "help" or Arg(...)] since 0.5.14."""
    srt = root / "sglang" / "srt"
    groups = srt / "arg_groups"
    sources = Sources([groups / "choices.py", srt / "server_args.py", *sorted((groups / "fields").glob("*.py"))])
    owners = [name for name in sources.fields if name == "ServerArgs" or (groups / "fields").is_dir()]
    fields = {name: pair for owner in owners for name, pair in sources.fields[owner].items()}
    rows: dict[str, Row] = {}
    for name, (annotation, value) in fields.items():
        found = annotated(sources, name, annotation, value)
        if found is not None:
            rows[found["flags"][0]] = found
    for call, flags in sources.calls("add_argument"):
        given = keywords(call)
        dest = sources.value(given.get("dest")) or destination(flags)
        switch = "action" in given and "nargs" not in given and "type" not in given and "choices" not in given
        default = given.get("default")
        if isinstance(default, ast.Attribute) and default.attr in fields:
            default = fields[default.attr][1]
        elif default is None and dest in fields:
            default = fields[dest][1]
        choices = sources.value(given.get("choices"))
        rows[flags[0]] = row(
            both_ways(flags, given.get("action")),
            dest,
            "bool" if switch else ast.unparse(given["type"]) if "type" in given else "str",
            sources.default(default),
            closed(choices),
            nargs=0 if switch else sources.value(given.get("nargs")),
        )
    return list(rows.values())


def annotated(sources: Sources, name: str, annotation: Any, value: Any) -> Row | None:
    """The row of one annotated field, or None if the field is no flag."""
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("A", "Annotated")):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    marks = [part for part in parts[1:] if isinstance(part, ast.Call) and ast.unparse(part.func) == "Arg"]
    texts = [part for part in parts[1:] if isinstance(part, (ast.Constant, ast.JoinedStr, ast.BinOp))]
    if not marks and not texts:
        return None
    given = keywords(marks[0]) if marks else {}
    if sources.value(given.get("no_cli")):
        return None
    flags = [sources.value(given.get("cli_name")) or "--" + name.replace("_", "-")]
    flags += sources.value(given.get("aliases")) or []
    kind = ast.unparse(parts[0])
    reader = given.get("type_parser", given.get("type"))
    switch = kind in ("bool", "Optional[bool]") and reader is None
    several = "+" if re.match(r"(?:Optional\[)?[Ll]ist\[", kind) and reader is None else None
    choices = sources.value(given["choices"]) if "choices" in given else sources.choices(parts[0])
    return row(
        both_ways(flags, given.get("action")),
        name,
        "bool" if switch else kind if reader is None else ast.unparse(reader),
        sources.default(value),
        closed(choices),
        nargs=0 if switch else sources.value(given.get("nargs")) or several,
    )
