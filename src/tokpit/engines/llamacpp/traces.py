"""What llama.cpp leaves on a host and in texts."""

from __future__ import annotations

from tokpit.engines.base import Traces

TRACES = Traces(
    words=("llama[-_.](server|cpp)",),
    launches=("llama-server",),
    binaries=("llama-server",),
    model_folders=("$HOME/.cache/llama.cpp",),
    images=("llama",),
    image_program=("/app/llama-server",),
    image_entry=("llama-server",),
    metrics=("llamacpp:",),
)
