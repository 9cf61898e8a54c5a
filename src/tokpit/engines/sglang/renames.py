"""Flags of SGLang that became others: what the tables cannot say by themselves."""

from __future__ import annotations

from tokpit.engines.flagkit.renames import Renames

RENAMES = Renames(
    chains=(
        ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"),
        ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
        ("--cuda-graph-bs", "--cuda-graph-bs-decode"),
        ("--stream-output", "--incremental-streaming-output"),
        ("--speculative-dflash-draft-window-size", "--speculative-draft-window-size"),
        ("--nsa-prefill", "--nsa-prefill-backend", "--dsa-prefill-backend"),
        ("--nsa-decode", "--nsa-decode-backend", "--dsa-decode-backend"),
        ("--nsa-prefill-cp-mode", "--dsa-prefill-cp-mode"),
        ("--enable-prefill-context-parallel", "--enable-prefill-cp"),
        ("--enable-nsa-prefill-context-parallel", "--enable-dsa-prefill-context-parallel", "--enable-prefill-cp"),
        ("--enable-gdn-replayssm-spec", "--enable-linear-replayssm-spec"),
        ("--oltp-traces-endpoint", "--otlp-traces-endpoint"),
        ("--max-micro-batch-size", "--pp-max-micro-batch-size"),
        ("--kt-amx-weight-path", "--kt-weight-path"),
        ("--kt-amx-method", "--kt-method"),
    ),
    advice={
        "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill",
        "--enable-piecewise-cuda-graph": "--cuda-graph-backend-prefill",
        "--enable-ep-moe": "--ep-size",
        "--enable-deepep-moe": "--moe-a2a-backend",
        "--enable-flashinfer-moe": "--moe-runner-backend",
        "--enable-flashinfer-cutlass-moe": "--moe-runner-backend",
        "--enable-flashinfer-trtllm-moe": "--moe-runner-backend",
        "--enable-flashinfer-cutedsl-moe": "--moe-runner-backend",
        "--enable-flashinfer-mxfp4-moe": "--moe-runner-backend",
        "--enable-triton-kernel-moe": "--moe-runner-backend",
        "--enable-flashinfer-mla": "--attention-backend",
        "--enable-flashmla": "--attention-backend",
        "--prefill-cp-mode": "--cp-strategy",
        "--nsa-prefill-cp-mode": "--cp-strategy",
        "--dsa-prefill-cp-mode": "--cp-strategy",
        "--hybrid-kvcache-ratio": "--swa-full-tokens-ratio",
    },
    deprecated={
        # flag: (a flag that is there only since the deprecation, successor)
        "--disable-cuda-graph": ("--cuda-graph-backend-decode", "--cuda-graph-backend-decode"),
        "--enable-dp-attention": ("--attn-dp-size", "--attn-dp-size"),
        "--mamba-scheduler-strategy": ("--mamba-radix-cache-strategy", "--mamba-radix-cache-strategy"),
        "--cuda-graph-max-bs": ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-decode"),
        "--cuda-graph-bs": ("--cuda-graph-bs-decode", "--cuda-graph-bs-decode"),
    },
)
