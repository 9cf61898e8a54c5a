"""Flags of a program of its own, read from what its --help prints; the text is of a real llama-server, shortened."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokpit.domain.hostspec import HostSpec
from tokpit.engines.flagkit.tables import catalog
from tokpit.engines.llamacpp.helptext import read_help
from tokpit.engines.registry import engine
from tokpit.ops.host.schema import installed_schema
from tokpit.transport.local import LocalHost

HELP = """\
load_backend: loaded CPU backend from /opt/llama/libggml-cpu.so
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use during generation (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
                                        (env: LLAMA_ARG_FLASH_ATTN)
--rope-scaling {none,linear,yarn}       RoPE frequency scaling method, defaults to linear unless specified by
                                        the model
                                        (env: LLAMA_ARG_ROPE_SCALING_TYPE)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
                                        (env: LLAMA_ARG_KV_OFFLOAD)
-ot,   --override-tensor <tensor name pattern>=<buffer type>,...
                                        override tensor buffer type
                                        (env: LLAMA_ARG_OVERRIDE_TENSOR)
--control-vector-layer-range START END
                                        layer range to apply the control vector(s) to, start and end inclusive
-lm,   --load-mode MODE                 model loading mode (default: auto)
                                        - none: no special loading mode
--fim-qwen-1.5b-default                 use default Qwen 2.5 Coder 1.5B
"""


def test_each_kind_of_row_is_read_and_agrees_with_the_packed_table() -> None:
    rows = {row.flags[0]: row for row in read_help(HELP)}
    assert list(rows) == [
        *("--help", "--threads", "--flash-attn", "--rope-scaling", "--kv-offload", "--override-tensor"),
        *("--control-vector-layer-range", "--load-mode", "--fim-qwen-1.5b-default"),
    ]
    assert rows["--kv-offload"].flags == ("--kv-offload", "--no-kv-offload", "-kvo", "-nkvo")
    assert (rows["--flash-attn"].choices, rows["--rope-scaling"].choices) == (
        ("on", "off", "auto"),
        ("none", "linear", "yarn"),
    )
    assert (rows["--control-vector-layer-range"].nargs, rows["--help"].nargs, rows["--load-mode"].nargs) == (2, 0, None)
    assert (rows["--threads"].type, rows["--threads"].default) == ("int", "-1")
    packed = catalog("llamacpp").at("b11434")
    for row in rows.values():
        known = packed.exact(row.flags[0])
        assert known is not None
        choices = tuple(known.choices) if known.choices else None
        assert msgspec.structs.replace(known, choices=choices) == row


def test_flags_that_a_build_has_dropped_point_to_their_successor() -> None:
    llama = engine("llamacpp")
    (issue,) = llama.check_flags(["--no-mmap"], "b11434")
    assert (issue.severity, issue.successor) == ("error", "--load-mode")
    assert llama.check_flags(["--no-mmap"], "b10434") == []
    assert llama.check_flags(["--load-mode", "none"], "b11434") == []


async def test_a_launch_asks_the_program_itself(tmp_path: Path) -> None:
    binary = tmp_path / "llama-server"
    more = "".join(f"--brand-new-{n} N                         new (default: {n})\n" for n in range(20))
    (tmp_path / "help.txt").write_text(HELP + more)
    binary.write_text(f'#!/bin/sh\n[ "$1" = --help ] && cat {tmp_path}/help.txt\n')
    binary.chmod(0o755)
    host = LocalHost(HostSpec(name="local", local=True))
    llama = engine("llamacpp")
    try:
        schema = await installed_schema(host, llama, (str(binary),), "b99999", folder=tmp_path / "cache")
        assert schema is not None
        assert llama.check_flags(["--brand-new-7", "3"], "b99999", schema) == []
        assert [i.severity for i in llama.check_flags(["--brand-new-x"], "b99999", schema)] == ["error"]
        binary.write_text("#!/bin/sh\necho 'error: cannot load libcudart.so.12' >&2\nexit 127\n")
        assert await installed_schema(host, llama, (str(binary),), "b99998", folder=tmp_path / "cache") is None
        kept = await installed_schema(host, llama, (str(binary),), "b99999", folder=tmp_path / "cache")
        assert kept == schema, "asked once a version"
    finally:
        await host.close()
