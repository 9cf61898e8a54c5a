"""Why a llama-server failed: its signatures and what its log looks like (trees 2025-08 to 2026-10)."""

from __future__ import annotations

import re

from tokpit.domain.verdict import Fix, Verdict
from tokpit.engines.verdictkit.course import Dialect
from tokpit.engines.verdictkit.shared_gpu import CPU_FALLBACK, GPU, out_of_memory
from tokpit.engines.verdictkit.shared_hub import MODEL
from tokpit.engines.verdictkit.shared_python import PYTHON
from tokpit.engines.verdictkit.shared_system import HTTP_PORT, SYSTEM
from tokpit.engines.verdictkit.signature import Case, Rank, Signature, retell, sig


def _renamed(verdict: Verdict, case: Case) -> Verdict:
    successor = str(verdict.figures.get("successor", "")).strip("`'\".,")
    return (
        retell(verdict, fixes=(Fix(label=f"use {successor}", raw_add=(successor,)),))
        if successor.startswith("-")
        else verdict
    )


ARGS: tuple[Signature, ...] = (
    sig(
        "FLAG_UNRECOGNIZED",
        r"error: invalid argument: (?P<flag>\S+)",
        "Unknown flag {flag}: this build does not take it.",
        "Take it out, or use the name that --help of this build lists.",
        phase="args",
        anywhere=True,
    ),
    sig(
        "FLAG_RENAMED",
        r"error: (?:the )?argument (?:(?P<flag>\S+) )?has been removed\.? ?(?:use (?P<successor>\S+))?",
        "A flag was removed from this build; its successor is {successor}.",
        "Use {successor}.",
        phase="args",
        refine=_renamed,
        anywhere=True,
    ),
    sig(
        "FLAG_BAD_VALUE",
        r"error while handling argument \"(?P<flag>[^\"]+)\": (?P<why>[^\n]*)",
        "{flag} does not take this value: {why}.",
        "Correct the value.",
        phase="args",
        anywhere=True,
    ),
    sig(
        "FLAG_MISSING",
        r"error: expected value for argument|error: --model is required|error: no model",
        "A required value is missing on the command line.",
        "Add it.",
        phase="args",
        anywhere=True,
    ),
    sig(
        "PORT_IN_USE",
        r"couldn't bind (?:HTTP )?server socket, hostname: (?P<address>\S+), port: (?P<port>\d+)",
        "Port {port} is already in use (or {address} is no address of this host).",
        "See who listens (`ss -ltnp 'sport = :{port}'`); stop it if it is yours, or take another port.",
        phase="http",
        anywhere=True,
        survives=True,
    ),
)

LOADING: tuple[Signature, ...] = (
    sig(
        "OOM_GPU",
        r"allocating (?P<asked>[\d.]+) (?P<asked_unit>MiB) on device (?P<gpu>\d+): \w+ failed: out of memory",
        "GPU out of memory.",
        anywhere=True,
        refine=out_of_memory,
    ),
    sig(
        "MODEL_PATH_MISSING",
        r"(?:failed to open GGUF file|gguf_init_from_file: failed to open|llama_model_load:[^\n]*failed to open) "
        r"'?(?P<path>[^'\n]+?)'?(?: \(|:|$)",
        "The model file {path} cannot be opened.",
        "Check the path as the launch user and inside the container.",
        phase="load",
        anywhere=True,
    ),
    sig(
        "WEIGHTS_CORRUPT",
        r"invalid magic|tensor '[^']*' data is not within the file bounds|file bounds, model is corrupted or "
        r"incomplete|failed to read (?:magic|header|key-values|tensor)",
        "The GGUF file is broken or incomplete.",
        "Compare its size and checksum with the source, and fetch it again.",
        phase="load",
        anywhere=True,
    ),
    sig(
        "MODEL_UNSUPPORTED",
        r"unknown model architecture: '(?P<arch>[^']+)'",
        "This build does not know the architecture {arch}.",
        "Use a newer build.",
        phase="load",
        anywhere=True,
    ),
    sig(
        "WEIGHTS_MISMATCH",
        r"missing tensor '(?P<tensor>[^']+)'|tensor '(?P<tensor2>[^']+)' has wrong shape|wrong number of tensors",
        "The GGUF file does not fit this build: a tensor is missing or has another shape.",
        "Convert the model with a converter of this build's age, or use a newer build.",
        phase="load",
        anywhere=True,
    ),
    sig(
        "TOKENIZER",
        r"unknown pre-tokenizer type: '(?P<kind>[^']+)'|error loading vocab|cannot find tokenizer",
        "The tokenizer in the GGUF file is unknown to this build.",
        "Use a newer build.",
        phase="load",
        anywhere=True,
    ),
    sig(
        "DRAFT_MISMATCH",
        r"failed to load draft model|draft model [^\n]*(?:not compatible|vocab)|speculative[^\n]*not compatible",
        "The draft model cannot be used with this model.",
        "Use a draft of the same family and vocabulary, or none.",
        phase="load",
        rank=Rank.VAGUE,
        anywhere=True,
    ),
    sig(
        "NO_KV_MEMORY",
        r"failed to (?:create|initialize) (?:the )?context|failed to allocate (?:compute|\S+ )?buffers?|unable to "
        r"allocate (?P<device>\w+) buffer|failed to allocate buffer for kv cache|llama_init_from_model: failed|"
        r"failed to fit params",
        "The context (KV cache or compute buffers) does not fit the memory.",
        "Lower -c or -np, quantise the cache (-ctk q8_0 -ctv q8_0), or put fewer layers on the GPU (-ngl).",
        phase="memory",
        rank=Rank.VAGUE,
        anywhere=True,
    ),
    sig(
        "MODEL_LOAD_FAILED",
        r"exiting due to model loading error|failed to load model|error loading model: (?P<why>[^\n]*)",
        "The model was not loaded: {why}",
        "Read the first error above it.",
        phase="load",
        rank=Rank.DEATH,
        anywhere=True,
        survives=True,
    ),
    sig(
        "ASSERTION",
        r"GGML_ASSERT\((?P<what>[^\n]*)\) failed",
        "An assertion of the library failed: {what}.",
        "Use another build; report it with the lines above.",
        rank=Rank.VAGUE,
        survives=True,
    ),
)

SIGNATURES = (*ARGS, *LOADING, *HTTP_PORT, *GPU, *MODEL, *PYTHON, *SYSTEM, *CPU_FALLBACK)

DIALECT = Dialect(
    signatures=SIGNATURES,
    phases=tuple(
        (re.compile(pattern), phase)
        for pattern, phase in (
            (r"load_model: loading model|llama_model_loader: loaded meta|load_tensors:", "load"),
            (r"llama_context: |llama_kv_cache|initializing(?: slots)?, n_slots", "memory"),
            (r"model loaded$", "http"),
            (r"listening (?:on|at)|server is listening", "ready"),
        )
    ),
    life=re.compile(
        r"slot (?:print_timing|release|launch_slot_|update_slots): |all slots are idle|done request: POST \S+ \S+ 200"
    ),
    boot=re.compile(r"^(?:main: )?build(?:_info)?: b?\d+"),
    early=re.compile(r"load_model: loading model '|llama_model_loader: loaded meta"),
    death=re.compile(
        r"exiting due to model loading error|CUDA error: |GGML_ASSERT|^Killed$|Segmentation fault|^Aborted|error: "
        r"invalid argument|couldn't bind|Out of memory: Killed process"
    ),
    wrapper=re.compile(r"exiting due to|failed to load model"),
    facts=re.compile(r"(?P<key>\w+) = (?P<value>[^,\s]+)"),
    echo=re.compile(r"n_slots = "),
)
