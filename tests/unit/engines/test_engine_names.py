"""Adding an engine touches its folder and one line of the registry: no other room may know an engine by its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokpit.engines import registry
from tokpit.engines.base import Engine

SRC = Path(registry.__file__).parents[1]
NAMES = re.compile(r"(?i)sglang|vllm|llama|\bsgl\b")
EXEMPT = {"engines/registry.py", "cli/demo.py"}
"""The registration itself, and the demo, which is about the simulated host and its server."""
SCRIPTS = re.compile(r"engines/flagkit/(?:host_\w+|dump)\.py|engines/(?:log|verdict)kit/\w+\.py")
"""Scripts that run inside an engine's own environment, and log patterns that several engines share."""


def _rooms() -> Iterator[Path]:
    for path in sorted(SRC.rglob("*.py")):
        room = path.relative_to(SRC)
        own_folder = room.parts[0] == "sim" or (room.parts[0] == "engines" and room.parts[1] in registry.names())
        if not own_folder and room.as_posix() not in EXEMPT and not SCRIPTS.fullmatch(room.as_posix()):
            yield path


def _named(tree: ast.Module) -> Iterator[str]:
    """Identifiers and string constants, docstrings and attribute notes aside, that name an engine."""
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
            text = node.value
        elif isinstance(node, ast.Name):
            text = node.id
        elif isinstance(node, ast.ImportFrom):
            text = node.module or ""
        else:
            continue
        if NAMES.search(text):
            yield f"line {node.lineno}: {text[:80]}"


@pytest.mark.parametrize("path", _rooms(), ids=lambda path: str(path.relative_to(SRC)))
def test_no_engine_is_known_by_name_outside_its_folder(path: Path) -> None:
    assert list(_named(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_engine_answers_the_whole_protocol(name: str) -> None:
    engine = registry.engine(name)
    assert isinstance(engine, Engine)
    assert engine.name == name
    assert engine.title
    assert engine.process_words
    assert engine.http.default_port
    assert engine.milestones[-1].phase == "ready"
    assert not engine.findings([])
    assert engine.verdict([]) is None
    assert not list(engine.grammar().flush())


def test_titles_make_a_sentence() -> None:
    assert registry.listed() == "SGLang, vLLM or llama.cpp"
