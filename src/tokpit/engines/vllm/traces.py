"""What vLLM leaves on a host and in texts."""

from __future__ import annotations

from tokpit.engines.base import Traces

TRACES = Traces(
    words=("vllm",),
    launches=("vllm serve", r"vllm\.entrypoints", "vllm/vllm"),
    distribution=r"vllm(?:-(?:cpu|rocm|nightly|xpu|cu\d+))?",
    metadata=("vllm-*", "vllm_*-*"),
    companions=("flashinfer_python-*",),
    images=("vllm",),
    image_program=("vllm", "serve"),
    image_entry=("vllm", "serve"),
    echoes=((r"non-default args: (?=\{)", False), (r"\bargs: Namespace(?=\()", True)),
    echo_words=("non-default args", "API server version", "args: Namespace"),
    version_line=r"API server version (\S+)",
    metrics=("vllm:",),
)
