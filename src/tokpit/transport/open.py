"""The one place that chooses a transport."""

from __future__ import annotations

from tokpit.transport.base import Host, HostSpec, Prompt


def open_host(spec: HostSpec, *, prompt: Prompt | None = None) -> Host:
    """The Host for `spec`, not connected yet. `prompt` None: nobody can be asked."""
    if spec.local:
        from tokpit.transport.local import LocalHost

        return LocalHost(spec)
    from tokpit.transport.ssh import SshHost

    return SshHost(spec, prompt=prompt)
