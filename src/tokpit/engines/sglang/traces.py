"""What SGLang leaves on a host and in texts."""

from __future__ import annotations

from tokpit.engines.base import Traces

TRACES = Traces(
    words=("sglang", "lmsysorg"),
    launches=(r"sglang\.launch_server", "sglang serve", "lmsysorg/"),
    distribution="sglang",
    metadata=("sglang-*",),
    companions=("sgl_kernel-*", "sglang_kernel-*", "flashinfer_python-*"),
    images=("sglang", "lmsys"),
    image_program=("python3", "-m", "sglang.launch_server"),
    echoes=((r"server_args=(?:ServerArgs)?(?=[({])", True),),
    echo_words=("server_args=",),
    metrics=("sglang:",),
)
