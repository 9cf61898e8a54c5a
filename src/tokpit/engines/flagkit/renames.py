"""Flags that became others, as far as the tables cannot say it themselves; each engine has its own `RENAMES`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tokpit.engines.flagkit.tables import Catalog, FlagTable


class Renames(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's renames. A rename takes the same values; where a newer flag only covers the same ground, it is
    advice.
    """

    chains: tuple[tuple[str, ...], ...] = ()
    """Names of one flag, the oldest first."""
    advice: Mapping[str, str] = {}
    deprecated: Mapping[str, tuple[str, str]] = {}
    """Only what is known to warn or to fail: flag to (a flag that is there only since the deprecation, successor or
    an empty text)."""
    stubs: bool = False
    """Old names stay listed, and only refuse the start."""

    def other_name(self, option: str, table: FlagTable, catalog: Catalog) -> str | None:
        """What this version calls a flag of another version: an option of the same destination, or a known rename."""
        for chain in self.chains:
            if option in chain:
                found = next((name for name in reversed(chain) if name != option and table.exact(name)), None)
                if found:
                    return found
        spec = catalog.last_spec(option)
        if spec is None:
            return None
        for name in spec.flags:
            if name != option and table.exact(name) and not name.startswith("--no-"):
                return name
        same = next((row for row in table.rows if row.dest == spec.dest and row.type == spec.type), None)
        return same.flags[0] if same is not None and same.flags[0].startswith("-") else None

    def look_at(self, option: str, table: FlagTable) -> str | None:
        """A flag to look at instead of a removed one that has no successor with the same meaning."""
        found = self.advice.get(option)
        return found if found and table.exact(found) else None

    def successor(self, option: str, table: FlagTable) -> str | None:
        """The successor of a flag that this version takes with a warning; empty: none; None: not deprecated."""
        known = self.deprecated.get(option)
        if known is None:
            return None
        since, successor = known
        return successor if table.exact(since) else None

    def stub(self, option: str, table: FlagTable) -> str | None:
        """The successor of a flag that is still listed but only refuses the start."""
        if not self.stubs:
            return None
        chain = next((chain for chain in self.chains if option in chain[:-1]), ())
        return chain[-1] if chain and table.exact(chain[-1]) else None
