"""llama.cpp: flags, log grammar, metrics, milestones, failures, HTTP facts."""

from __future__ import annotations

from tokpit.engines.folder import FolderEngine
from tokpit.engines.llamacpp import http


class LlamacppEngine(FolderEngine):
    """llama.cpp, as tokpit.engines.base.Engine asks. Stateless."""

    name = "llamacpp"
    title = "llama.cpp"
    http = http.FACTS
    packages = ("llama_cpp",)
    process_words = ("llama",)
    env_prefixes = ("LLAMA_", "GGML_")

    def version_command(self, python: str) -> tuple[str, ...]:
        """See Engine. `python` is the llama-server binary (there is no interpreter); prints its build: `b10434`."""
        return ("sh", "-c", '"$1" --version 2>&1 | sed -n "s/^version: \\([0-9][0-9]*\\).*/b\\1/p"', "sh", python)


ENGINE = LlamacppEngine()
