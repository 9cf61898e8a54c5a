"""vLLM: flags, log grammar, metrics, milestones, failures, HTTP facts."""

from __future__ import annotations

from tokpit.engines.folder import FolderEngine
from tokpit.engines.vllm import http


class VllmEngine(FolderEngine):
    """vLLM, as tokpit.engines.base.Engine asks. Stateless."""

    name = "vllm"
    title = "vLLM"
    http = http.FACTS
    packages = ("vllm",)
    process_words = ("vllm",)
    env_prefixes = ("VLLM_",)


ENGINE = VllmEngine()
