"""What a host has to choose from for a launch: environments that hold the engine, and models."""

from __future__ import annotations

from typing import Any

from tokpit.ui.view import engine_title


async def pickable(
    session: Any, host: str, engine: str, what: str, *, fresh: bool = False
) -> tuple[str, list[tuple[str, str]]]:
    """A title, and what is shown with its value; `what`: `program` or `model`. Raises HostError."""
    from tokpit.ops.host.environments import find_environments, holding

    found = await find_environments(session, host, fresh=fresh)
    if what == "program":
        choices = []
        for place in holding(found, engine):
            torch = place.package("torch")
            details = f"{place.kind}, torch {torch.version}" if torch is not None else place.kind
            choices.append((f"{place.engines[engine]:<16} {place.prefix}  ({details})", place.prefix))
        choices += [(binary.path, binary.path) for binary in found.binaries if engine in binary.path.replace("-", "")]
        kind = f"environment{'s' if len(choices) != 1 else ''} with {engine_title(engine)}"
    else:
        choices = []
        for model in sorted(found.models, key=lambda model: model.name.lower()):
            size = f"{model.size_bytes / 1e9:,.1f} GB" if model.size_bytes else "size not known"
            unfinished = ", download unfinished" if model.unfinished else ""
            where = "" if model.kind == "hub" else f"  {model.path}"
            value = model.name if model.kind == "hub" else model.path
            choices.append((f"{model.name}  ({size}{unfinished}){where}", value))
        kind = f"model{'s' if len(choices) != 1 else ''}"
    cut = "; the search was cut short" if found.cut else ""
    return (f"{len(choices)} {kind} on {host}{cut}" if choices else f"no {kind} found on {host}{cut}"), choices
