"""Rules between llama-server's flags, and of flags against model and host. One rule, one function."""

from __future__ import annotations

from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.verdictkit.ask import Ask, Rule, answer, fix
from tokpit.engines.verdictkit.host_rules import environment_is_well_formed, gpu_is_there, paths_exist, port_is_free

DEFAULT_PORT = 8080
_UNIFIED = ("-kvu", "--kv-unified")
_QUANTISED = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")


def port(ask: Ask) -> RuleAnswer | None:
    """llama-server listens while it loads; a busy port fails at once."""
    return port_is_free(ask, DEFAULT_PORT)


def context_per_slot(ask: Ask) -> RuleAnswer | None:
    """-c is the whole KV cache: each slot gets -c / -np, unless the slots share one cache (-kvu)."""
    whole, slots = ask.settings.context_len, ask.settings.max_running
    if not whole or slots is None or slots < 2 or any(ask.flag(name) is not None for name in _UNIFIED):
        return None
    each = whole // slots
    limit = ask.model.max_context
    full = min(limit, whole) if limit else whole
    return answer(
        "CTX_PER_SLOT",
        "warning" if each < 4096 else "info",
        f"Each of the {slots} slots gets a context of {each} tokens, not {whole}.",
        f"{whole} / {slots} = {each}",
        (fix(f"-c {full * slots}", context_len=full * slots), fix("one slot", max_running=1)),
    )


def context_fits_model(ask: Ask) -> RuleAnswer | None:
    """A slot's context beyond the model's training context degrades, silently."""
    whole, limit, slots = ask.settings.context_len, ask.model.max_context, ask.settings.max_running or 1
    if not whole or limit is None or whole // max(1, slots) <= limit:
        return None
    return answer(
        "CTX_TOO_LONG",
        "warning",
        f"A slot's context ({whole // max(1, slots)}) is longer than the model was trained for ({limit}).",
        f"{whole} / {slots} = {whole // max(1, slots)} > {limit}",
        (fix(f"-c {limit * max(1, slots)}", context_len=limit * max(1, slots)),),
    )


def draft_model_given(ask: Ask) -> RuleAnswer | None:
    """Draft models must be named; MTP drafts with the model's own head."""
    if not ask.speculates or ask.settings.draft_model is not None:
        return None
    if ask.settings.spec_method in {"draft", "eagle3", "dflash"}:
        return answer(
            "SPEC_NO_DRAFT_MODEL", "error", f"Speculation {ask.settings.spec_method} needs a draft model (-md)."
        )
    if ask.settings.spec_method == "mtp" and ask.model.mtp_layers == 0:
        return answer(
            "SPEC_NO_DRAFT_MODEL", "error", "The model file has no MTP head, so there is nothing to draft with."
        )
    return None


def quantised_cache_needs_flash(ask: Ask) -> RuleAnswer | None:
    """A quantised V cache needs flash attention."""
    kind = ask.settings.kv_dtype or ask.flag("-ctv", "--cache-type-v")
    if kind not in _QUANTISED or ask.flag("-fa", "--flash-attn") not in {"off", "0", "false", "disabled"}:
        return None
    return answer("FLAG_CONFLICT", "error", f"A V cache in {kind} needs flash attention, which is switched off.")


RULES: tuple[Rule, ...] = (
    port,
    paths_exist,
    environment_is_well_formed,
    gpu_is_there,
    context_per_slot,
    context_fits_model,
    draft_model_given,
    quantised_cache_needs_flash,
)
