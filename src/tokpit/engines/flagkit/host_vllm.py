"""vLLM's flag schema read from its source files. Part of `host_dump`, sent to hosts: standard library only."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from tokpit.engines.flagkit.host_source import Row, Sources, both_ways, closed, destination, keywords, row

Pair = tuple[Any, Any]
"""Annotation and default of a field."""
_OWNERS = ("EngineArgs", "AsyncEngineArgs", "FrontendArgs", "BaseFrontendArgs")


class VllmSources(Sources):
    """`add_argument(..., **cache_kwargs["field"])` calls, with types and defaults from the config classes."""

    def __init__(self, root: Path) -> None:
        package = root / "vllm"
        folder = package / "config"
        config = sorted(folder.rglob("*.py")) if folder.is_dir() else [package / "config.py"]
        entry = sorted((package / "entrypoints").rglob("cli_args.py"))
        serve = package / "entrypoints" / "cli" / "serve.py"
        super().__init__([*config, package / "engine" / "arg_utils.py", *entry, serve])
        self.groups: dict[str, str] = {}
        for tree in self.trees:
            for node in ast.walk(tree):
                if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                    continue
                if node.value.args and ast.unparse(node.value.func).endswith("get_kwargs"):
                    self.groups[ast.unparse(node.targets[0])] = ast.unparse(node.value.args[0])

    def resolve(self, annotation: Any, value: Any) -> Pair:
        """Follow `SomeConfig.field` and `get_field(SomeConfig, "field")` to where the field is declared."""
        for _ in range(4):
            target = None
            if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
                target = (value.value.id, value.attr)
            elif isinstance(value, ast.Call) and ast.unparse(value.func) == "get_field" and len(value.args) == 2:
                target = (ast.unparse(value.args[0]), str(self.value(value.args[1])))
            if target is None or target[1] not in self.fields.get(target[0], {}):
                break
            annotation, value = self.fields[target[0]][target[1]]
        return annotation, value

    def of_field(self, flags: list[str], dest: str, pair: Pair) -> Row:
        """The row of a declared field, as the engine derives it from the annotation."""
        annotation, value = pair
        text = "str" if annotation is None else ast.unparse(annotation)
        bare = re.sub(r"^Optional\[(.*)\]$", r"\1", text).replace(" | None", "")
        members = {part.strip().split("[")[0] for part in bare.split(" | ")}
        switch = bare == "bool"
        nargs: Any = 0 if switch else "+" if {"list", "List", "set"} & members else "?" if "bool" in members else None
        if switch:
            flags = flags + ["--no-" + flag[2:] for flag in flags if flag.startswith("--")]
        choices = closed(self.choices(annotation))
        return row(flags, dest, "bool" if switch else text, self.default(value), choices, nargs=nargs)

    def rows(self) -> list[Row]:
        """All rows: declared options, then front-end fields that no call names."""
        found: dict[str, Row] = {}
        for call, flags in self.calls("add_argument"):
            made = self.of_call(call, flags)
            if made is not None:
                found[flags[0]] = made
        known = {made["dest"] for made in found.values()}
        for owner in ("BaseFrontendArgs", "FrontendArgs"):
            for name, pair in self.fields.get(owner, {}).items():
                if name not in known and not name.startswith("_"):
                    flag = "--" + name.replace("_", "-")
                    found[flag] = self.of_field([flag], name, self.resolve(*pair))
        return list(found.values())

    def of_call(self, call: ast.Call, flags: list[str]) -> Row | None:
        """The row of one add_argument call; None for positionals that are not the model."""
        given = keywords(call)
        spread = [item.value for item in call.keywords if item.arg is None]
        dest = self.value(given.get("dest")) or destination(flags)
        name, owners = destination(flags), list(_OWNERS)
        for item in spread:
            if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant):
                name = str(item.slice.value)
                owners.insert(0, self.groups.get(ast.unparse(item.value), "EngineArgs"))
        if spread:
            for owner in owners:
                if name in self.fields.get(owner, {}):
                    return self.of_field(flags, dest, self.resolve(*self.fields[owner][name]))
        if not flags[0].startswith("-") and flags[0] != "model_tag":
            return None
        action = self.value(given.get("action"))
        twice = both_ways(flags, given.get("action"))
        switch = action in ("store_true", "store_false") or len(twice) > len(flags)
        default = self.default(self.resolve(None, given["default"])[1]) if "default" in given else None
        if switch and "default" not in given:
            default = action == "store_false"
        kind = "bool" if switch else ast.unparse(given["type"]) if "type" in given else "str"
        choices = closed(self.value(given.get("choices")))
        return row(twice, dest, kind, default, choices, nargs=0 if switch else self.value(given.get("nargs")))
