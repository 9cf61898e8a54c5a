"""What is frozen with a sweep: before it, everything it ran on; after it, what was learned and what it says."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

from tokpit import __version__
from tokpit.domain.run import Run
from tokpit.domain.text import mask_secrets
from tokpit.ops.sweep.find import Search
from tokpit.ops.sweep.plan import Asked
from tokpit.ops.targets import Target
from tokpit.transport.base import quote

if TYPE_CHECKING:
    from tokpit.load.plan import Plan
    from tokpit.ops.session import Session

_WHERE = {"here": "in this process", "host": "on the server's host"}


def frozen_context(
    session: Session, target: Target, plan: Plan, asked: Asked, where: str, why: str, note: str
) -> dict[str, Any]:
    """Server, engine, workload, client and the link between. `note`: why the server's own figures are missing."""
    workload = plan.to_dict(secrets=False)
    workload.pop("prompt_rows", None)
    context: dict[str, Any] = {
        "plan": {**workload, "dataset": asked.dataset, "repeat": asked.repeat, "flush": asked.flush},
        "from": where,
        "from_reason": why,
        "client": f"tokpit {__version__}, load generated {_WHERE.get(where, f'on the {where}')}",
        "by": getpass.getuser(),
    }
    if note:
        context["server_side"] = f"not checked against the server: {note}"
    server = target.server
    if server is not None:
        context["engine"] = server.engine
        context["version"] = server.version or ""
        context["command"] = mask_secrets(quote(server.argv))
        context["settings"] = server.settings.given()
        context["pid"] = server.pid
    if target.host is not None:
        spec, link = session.host(target.host).spec, session.link(target.host)
        if not spec.local:
            rtt = link.rtt_s if link is not None else None
            context["link_rtt_s"] = rtt
            context["link"] = "ssh" + (f", round trip {rtt * 1000:.1f} ms" if rtt is not None else "")
        if spec.label:
            context["label"] = spec.label
    return context


def conclude(session: Session, target: Target, run: Run, search: Search | None) -> None:
    """Put what was learned meanwhile, and what the figures say, into the context of `run`."""
    from tokpit.ops.sweep.advice import findings_of, frozen_facts, stored

    if target.server is not None and (state := session.store.servers.get(target.server.id)) is not None:
        run.context["facts"] = frozen_facts(state.facts)
    if target.server is not None:
        gpus = session.store.gpus_of(target.server)
    else:
        gpus = session.store.host(target.host).gpus if target.host is not None else None
    if gpus is not None:
        run.context["gpus"] = [gpu.name for gpu in gpus.gpus]
        limits = {gpu.power_limit_w for gpu in gpus.gpus}
        if len(limits) == 1 and (limit := limits.pop()) is not None:
            run.context["power_limit_w"] = limit
    if search is not None:
        run.context["find"] = {"met": search.met, "missed": search.missed}
        run.context["found"] = search.sentence
    run.context["findings"] = stored(findings_of(run))
