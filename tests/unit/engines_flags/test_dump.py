"""The schema script runs anywhere, reads sources without importing them, and its answer is parsed with care."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokpit.engines import registry
from tokpit.engines.flagkit import dump

SGLANG = """
LEVELS = ["low", "high"]
class ServerArgs:
    model_path: A[str, Arg(aliases=["--model"])]
    port: A[int, "the port"] = 30000
    level: A[Optional[str], Arg(choices=LEVELS)] = None
    graph: A[bool, "x"] = False
    sizes: A[Optional[List[int]], "sizes"] = None
    length: A[Optional[int], Arg(type_parser=human_readable_int)] = None
    inner: A[int, Arg(no_cli=True)] = 1
    kind: A[Literal["a", "b"], "kind"] = "a"
    plain: int = 3
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--old-name", type=int, default=ServerArgs.port)
        parser.add_argument("--fused", action=argparse.BooleanOptionalAction)
"""
VLLM_CONFIG = """
Mode = Literal["fast", "safe"]
class CacheConfig:
    block_size: int | None = None
    mode: Mode = "fast"
    dtype: Mode | str = "auto"
    caching: bool = True
    names: list[str] = field(default_factory=list)
"""
VLLM_ARGS = """
class EngineArgs:
    block_size: int | None = CacheConfig.block_size
def add(parser):
    cache_kwargs = get_kwargs(CacheConfig)
    parser.add_argument("--block-size", "-b", **cache_kwargs["block_size"])
    parser.add_argument("--mode", **cache_kwargs["mode"])
    parser.add_argument("--dtype", **cache_kwargs["dtype"])
    parser.add_argument("--caching", **cache_kwargs["caching"])
    parser.add_argument("--names", **cache_kwargs["names"])
    parser.add_argument("--stats-off", action="store_true")
"""
VLLM_CLI = """
class FrontendArgs:
    host: str | None = None
    allow: list[str] = field(default_factory=lambda: ["*"])
def make(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
"""


def packages(root: Path) -> Path:
    files = {
        "sglang/srt/server_args.py": SGLANG,
        "vllm/config/cache.py": VLLM_CONFIG,
        "vllm/engine/arg_utils.py": VLLM_ARGS,
        "vllm/entrypoints/openai/cli_args.py": VLLM_CLI,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run(script: str, *argv: str, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-", *argv], input=script, env=env, capture_output=True, text=True, check=False, timeout=50
    )


def test_the_script_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(dump.script(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_sglang_sources_of_both_styles_are_read(tmp_path: Path) -> None:
    done = run(dump.script(), "sglang", "source", str(packages(tmp_path)))
    _, rows = dump.parse_dump(done.stdout)
    found = {row.flags[0]: row for row in rows}
    assert set(found) == {
        "--model-path", "--port", "--level", "--graph", "--sizes", "--length", "--kind", "--old-name", "--fused",
    }  # fmt: skip
    assert found["--model-path"].flags == ("--model-path", "--model")
    assert (found["--port"].type, found["--port"].default) == ("int", 30000)
    assert found["--old-name"].default == 30000
    assert found["--level"].choices == ("low", "high")
    assert found["--kind"].choices == ("a", "b")
    assert (found["--graph"].nargs, found["--sizes"].nargs, found["--sizes"].type) == (0, "+", "int")
    assert found["--length"].type == "human"
    assert found["--fused"].flags == ("--fused", "--no-fused")


def test_vllm_sources_take_types_and_defaults_from_the_config_classes(tmp_path: Path) -> None:
    done = run(dump.script(), "vllm", "source", str(packages(tmp_path)))
    _, rows = dump.parse_dump(done.stdout)
    found = {row.flags[0]: row for row in rows}
    assert set(found) == {
        "--block-size", "--mode", "--dtype", "--caching", "--names", "--stats-off", "model_tag", "--host", "--allow",
    }  # fmt: skip
    assert (found["--block-size"].flags, found["--block-size"].type) == (("--block-size", "-b"), "int")
    assert (found["--mode"].choices, found["--mode"].default) == (("fast", "safe"), "fast")
    assert found["--dtype"].choices is None
    assert found["--caching"].flags == ("--caching", "--no-caching")
    assert (found["--names"].nargs, found["--names"].default, found["--allow"].default) == ("+", [], ["*"])
    assert found["--stats-off"].nargs == 0


def test_the_engine_s_own_parser_is_read_through_what_its_import_prints(tmp_path: Path) -> None:
    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("print('noise on standard output')\n")
    (package / "server_args.py").write_text(
        "import argparse, os\nos.system('echo more noise')\n"
        "class ServerArgs:\n"
        "    @staticmethod\n"
        "    def add_cli_args(parser):\n"
        "        parser.add_argument('--model-path', required=True)\n"
        "        parser.add_argument('--secret', type=int, default=3, help=argparse.SUPPRESS)\n"
        "        parser.add_argument('--on', action='store_true')\n"
    )
    done = run(dump.script(), "sglang", "parser", path=str(tmp_path))
    assert done.stdout.count("\n") == 1
    version, rows = dump.parse_dump(done.stdout)
    assert version is None
    assert [(row.flags, row.type, row.nargs, row.hidden) for row in rows] == [
        (("--model-path",), "str", None, False),
        (("--secret",), "int", None, True),
        (("--on",), "bool", 0, False),
    ]


def test_an_engine_that_cannot_be_imported_is_read_from_its_sources(tmp_path: Path) -> None:
    root = packages(tmp_path)
    (root / "sglang" / "__init__.py").write_text("")
    (root / "sglang" / "srt" / "__init__.py").write_text("raise SystemExit('no device')\n")
    done = run(dump.script(), "sglang", "auto", path=str(root))
    answer = json.loads(done.stdout[len(dump.MARK) :])
    assert answer["route"] == "source"
    assert "no device" in answer["problems"][0]
    assert len(dump.parse_dump(done.stdout)[1]) == 9


def test_an_absent_engine_is_an_error_with_its_reason(tmp_path: Path) -> None:
    done = run(dump.script(), "vllm", "auto", path=str(tmp_path))
    assert done.returncode == 1
    with pytest.raises(ValueError, match="not installed"):
        dump.parse_dump(done.stdout)


@pytest.mark.parametrize("text", ["", "some noise\n", dump.MARK + "{}\n", dump.MARK + "[1]\n", dump.MARK + "{broken\n"])
def test_output_without_a_schema_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        dump.parse_dump(text)


def test_the_version_command_prints_the_version_of_a_distribution_alone() -> None:
    argv = registry.engine("vllm").version_command(sys.executable)
    assert argv[0] == sys.executable
    done = subprocess.run([arg.replace("vllm", "pytest") for arg in argv], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == pytest.__version__
