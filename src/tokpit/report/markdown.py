"""A report as Markdown (CommonMark with tables), for a ticket or a repository. Charts become their tables of points."""

from __future__ import annotations

import re

from tokpit.insight.words import num
from tokpit.report.document import Block, Chart, Claim, Code, Document, Paragraph, Points, Table

_SPECIAL = re.compile(r"([\\`*\[\]<|~]|(?<!-)>|(?<!\w)_|_(?!\w))")
"""What Markdown would take for its own wherever it stands: an underscore inside a word and an arrow are none of it."""


def markdown(document: Document) -> str:
    """The whole text; what a server printed cannot become markup."""
    lines = [f"# {plain(document.title)}", ""]
    if document.subtitle:
        lines += [plain(document.subtitle), ""]
    lines += [f"- {plain(name)}: {plain(value)}" for name, value in document.facts]
    lines += [""] if document.facts else []
    for section in document.sections:
        if section.title:
            lines += [f"## {plain(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    if document.footer:
        lines += ["---", "", plain(document.footer), ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text with every sign escaped that Markdown would take for its own."""
    return re.sub(r"^#", r"\\#", _cell(text))


def _cell(text: str) -> str:
    """The same for a cell of a table, where a # begins no heading."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _block(block: Block) -> list[str]:
    if isinstance(block, Paragraph):
        text = plain(block.text)
        return [f"**{text}**" if block.tone else text]
    if isinstance(block, Code):
        fence = "````" if "```" in block.text else "```"
        return [f"{fence}text", block.text, fence]
    if isinstance(block, Points):
        return [f"- {plain(item)}" for item in block.items]
    if isinstance(block, Table):
        rows = [[_cell(cell) if cell is not None else "–" for cell in row] for row in block.rows]
        return [*_table([_cell(name) for name in block.head], rows, block.right), *_note(block.note)]
    if isinstance(block, Chart):
        return _chart(block)
    return _claim(block)


def _note(text: str) -> list[str]:
    return ["", f"*{plain(text)}*"] if text else []


def _table(head: list[str], rows: list[list[str]], right: frozenset[int]) -> list[str]:
    rule = ["---:" if n in right else "---" for n in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _chart(chart: Chart) -> list[str]:
    """A table of the points; a chart over time gives only how many there are and between what they lie."""
    if chart.time:
        told = [
            f"- {plain(c.label)}: {num(min(c.ys))} to {num(max(c.ys))} {plain(chart.unit)}"
            for c in chart.curves
            if c.ys
        ]
        return [f"{plain(chart.title)}:", "", *told]
    xs = sorted({x for curve in chart.curves for x in curve.xs})
    known = [dict(zip(curve.xs, curve.ys, strict=True)) for curve in chart.curves]
    head = [plain(chart.x_label), *(f"{_cell(c.label)} ({plain(chart.unit)})" for c in chart.curves)]
    rows = [[f"{x:g}", *(num(values[x], 4) if x in values else "–" for values in known)] for x in xs]
    return [f"{plain(chart.title)}:", "", *_table(head, rows, frozenset(range(len(head))))]


def _claim(claim: Claim) -> list[str]:
    sure = f", {claim.confidence}" if claim.confidence else ""
    lines = [f"### {plain(claim.claim)}", "", f"{plain(claim.severity)}, `{claim.code}`{sure}", ""]
    lines += [f"- = {plain(part)}" for part in claim.arithmetic]
    lines += [f"- {plain(line)}" for line in claim.evidence]
    if claim.next_action:
        lines += ["", f"**Next:** {plain(claim.next_action)}"]
    return lines
