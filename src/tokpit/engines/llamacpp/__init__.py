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
    interpreted = False
    process_words = ("llama",)
    env_prefixes = ("LLAMA_", "GGML_")

    def version_command(self, python: str) -> tuple[str, ...]:
        """See Engine. `python` is the llama-server binary (there is no interpreter); prints its build: `b10434`.

        `version: 9235 (d14ce3dab)` in older builds, `version: 0.6.0-dev (build 11434, commit ...)` in newer ones
        (common/build-info.cpp.in).
        """
        newer, older = r"s/^version: .*(build \([0-9][0-9]*\),.*/b\1/p", r"s/^version: \([0-9][0-9]*\) (.*/b\1/p"
        return ("sh", "-c", f'"$1" --version 2>&1 | sed -n -e "{newer}" -e "{older}"', "sh", python)


ENGINE = LlamacppEngine()
