"""Other rules of SGLang: ports, chunks, names, graphs under DP attention."""

from __future__ import annotations

from tokpit.domain.verdict import Fix, RuleAnswer
from tokpit.engines.verdictkit.ask import Ask, Rule, answer, fix
from tokpit.engines.verdictkit.host_rules import port_is_free

DEFAULT_PORT = 30000
_GRAPH_BS = ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")


def port(ask: Ask) -> RuleAnswer | None:
    """SGLang binds its port only after the model is loaded."""
    return port_is_free(ask, DEFAULT_PORT)


def chunk_is_whole_pages(ask: Ask) -> RuleAnswer | None:
    """The prefill chunk must be a multiple of the page size."""
    chunk, page = ask.settings.chunked_prefill, ask.settings.page_size
    if chunk is None or page is None or chunk <= 0 or page <= 1 or chunk % page == 0:
        return None
    right = max(page, chunk // page * page)
    return answer(
        "FLAG_CONFLICT",
        "error",
        f"chunked_prefill_size {chunk} must be a multiple of page size {page}.",
        f"{chunk} % {page} = {chunk % page}",
        (fix(f"chunk {right}", chunked_prefill=right),),
    )


def served_name(ask: Ask) -> RuleAnswer | None:
    """A colon in the served name is asserted against."""
    name = ask.settings.served_name
    if name is None or ":" not in name:
        return None
    return answer(
        "FLAG_BAD_VALUE",
        "error",
        "The served model name must not contain a colon.",
        fixes=(fix("without colon", served_name=name.replace(":", "-")),),
    )


def graphs_under_dp_attention(ask: Ask) -> RuleAnswer | None:
    """With DP attention the batch of all ranks is compared with the captured batch size."""
    if ask.flag("--enable-dp-attention") is None:
        return None
    captured, running, dp = ask.flag_int(*_GRAPH_BS), ask.settings.max_running, ask.settings.dp or 1
    if captured is None or running is None or running <= captured:
        return None
    flag = next(name for name in _GRAPH_BS if ask.flag_int(name) is not None)
    return answer(
        "GRAPH_OFF",
        "warning",
        f"With DP attention the graph limit counts all {dp} ranks: {running} running requests exceed {captured}.",
        f"{running} > {captured}",
        (Fix(label=f"capture {running}", raw_remove=(flag,), raw_add=(flag, str(running))),),
    )


def nodes_divide(ask: Ask) -> RuleAnswer | None:
    """tp x pp must be a multiple of the nodes."""
    nodes, ranks = ask.flag_int("--nnodes") or 1, (ask.settings.tp or 1) * (ask.settings.pp or 1)
    if nodes <= 1 or ranks % nodes == 0:
        return None
    return answer(
        "FLAG_CONFLICT",
        "error",
        f"tp x pp = {ranks} must be a multiple of {nodes} nodes.",
        f"{ranks} % {nodes} = {ranks % nodes}",
    )


RULES: tuple[Rule, ...] = (port, chunk_is_whole_pages, served_name, graphs_under_dp_attention, nodes_divide)
