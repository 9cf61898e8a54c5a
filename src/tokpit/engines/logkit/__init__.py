"""Shared machinery of the log grammars: heads, folding, tables of line shapes, bars, clocks, derived quantities."""
