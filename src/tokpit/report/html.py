"""A report as one HTML file: styles and charts inside, no script, nothing fetched, light or dark as the reader is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tokpit.report.document import Block, Chart, Claim, Code, Document, Paragraph, Points, Table
from tokpit.report.svg import svg

_CSS = """
:root{color-scheme:light dark;--bg:#fbfbfc;--card:#fff;--fg:#1a1d21;--dim:#5b636e;--line:#dde1e6;--soft:#f1f3f5;
--good:#116b3a;--bad:#b3261e;--warn:#8a5200;--s1:#0b63c4;--s2:#c2410c;--s3:#15803d;--s4:#7c3aed;--faint:#8b949e}
@media (prefers-color-scheme:dark){:root{--bg:#0f1216;--card:#171b21;--fg:#e6e9ed;--dim:#9aa4b0;--line:#2b323b;
--soft:#1d232b;--good:#6fd08c;--bad:#ff8a80;--warn:#f0b35a;--s1:#6cb6ff;--s2:#ff9e64;--s3:#7ee787;--s4:#d2a8ff;
--faint:#7d8794}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1140px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:18px;margin:36px 0 12px;padding-bottom:6px;border-bottom:1px solid var(--line)}
p{margin:8px 0;max-width:80ch;overflow-wrap:anywhere}.sub{color:var(--dim);margin:0 0 18px}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
p.good,p.bad,p.warn{font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:12px 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px;margin:12px 0}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 12px 6px}
figcaption{font-weight:600;margin:0 0 6px}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg .tick,svg .axis{fill:var(--dim)}
.grid{stroke:var(--line)}.mark{stroke:var(--dim);stroke-dasharray:3 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{stroke:var(--card);stroke-width:1.5}
.line.s1{stroke:var(--s1)}.line.s2{stroke:var(--s2);stroke-dasharray:7 4}.line.s3{stroke:var(--s3)}
.line.s4{stroke:var(--s4)}.line.faint{stroke:var(--faint);stroke-dasharray:2 4}
.dot.s1{fill:var(--s1)}.dot.s2{fill:var(--s2)}.dot.s3{fill:var(--s3)}.dot.s4{fill:var(--s4)}.dot.faint{fill:var(--faint)}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card);margin:12px 0}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:600;background:var(--soft)}
th,td{padding:6px 10px;text-align:left;vertical-align:top;white-space:nowrap}
td.long{white-space:normal;min-width:22ch}th.r,td.r{text-align:right}tr+tr td{border-top:1px solid var(--line)}
.note{color:var(--dim);font-size:13px}
article{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--faint);border-radius:8px;
padding:12px 16px;margin:12px 0}
article.error{border-left-color:var(--bad)}article.warning{border-left-color:var(--warn)}
article h3{font-size:15px;margin:0;font-weight:600;overflow-wrap:anywhere}
.kind{font-size:12px;color:var(--dim);margin-bottom:4px}
ul{margin:8px 0;padding-left:20px}li{overflow-wrap:anywhere}
code,pre,.sum{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--soft);border-radius:8px;padding:12px;margin:12px 0}
.next{margin:8px 0 0}.next::before{content:"Next: ";color:var(--dim)}
footer{margin-top:40px;color:var(--dim);font-size:13px;border-top:1px solid var(--line);padding-top:12px}
@media (max-width:520px){main{padding:18px 14px 32px}dl{gap:4px 12px}svg text{font-size:15px}}
@media print{body{background:#fff}figure,article,.wide{break-inside:avoid}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html(document: Document) -> str:
    """The whole page. Every text in it is escaped: nothing that a server printed can become markup."""
    title = escape(document.title)
    body = [f"<h1>{title}</h1>"]
    if document.subtitle:
        body.append(f'<p class="sub">{escape(document.subtitle)}</p>')
    if document.facts:
        pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in document.facts)
        body.append(f"<dl>{pairs}</dl>")
    for section in document.sections:
        if section.title:
            body.append(f"<h2>{escape(section.title)}</h2>")
        body += _blocks(section.blocks)
    if document.footer:
        body.append(f"<footer>{escape(document.footer)}</footer>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{_CSS}</style></head>'
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def _blocks(blocks: Sequence[Block]) -> list[str]:
    """Neighbouring charts share a grid."""
    parts: list[str] = []
    figures: list[str] = []
    for block in blocks:
        if isinstance(block, Chart):
            drawn = svg(block)
            if drawn:
                figures.append(f"<figure><figcaption>{escape(block.title)}</figcaption>{drawn}</figure>")
            continue
        if figures:
            parts.append(f'<div class="charts">{"".join(figures)}</div>')
            figures = []
        parts.append(_block(block))
    if figures:
        parts.append(f'<div class="charts">{"".join(figures)}</div>')
    return parts


def _block(block: Table | Paragraph | Claim | Code | Points) -> str:
    if isinstance(block, Paragraph):
        return f'<p class="{block.tone}">{escape(block.text)}</p>' if block.tone else f"<p>{escape(block.text)}</p>"
    if isinstance(block, Code):
        return f"<pre>{escape(block.text)}</pre>"
    if isinstance(block, Points):
        return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in block.items)}</ul>"
    return _table(block) if isinstance(block, Table) else _claim(block)


def _table(table: Table) -> str:
    def cell(tag: str, n: int, text: str | None) -> str:
        styles = ["r"] if n in table.right else ["long"] if tag == "td" and text is not None and len(text) > 40 else []
        styles += [_TONES[text]] if text in _TONES else []
        style = f' class="{" ".join(styles)}"' if styles else ""
        return f"<{tag}{style}>{escape('–' if text is None else text)}</{tag}>"

    head = "".join(cell("th", n, text) for n, text in enumerate(table.head))
    rows = "".join(f"<tr>{''.join(cell('td', n, text) for n, text in enumerate(row))}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'


_TONES = {"better": "good", "worse": "bad"}


def _claim(claim: Claim) -> str:
    sure = f" · {claim.confidence}" if claim.confidence else ""
    parts = [
        f'<article class="{escape(claim.severity, quote=True)}">',
        f'<div class="kind">{escape(claim.severity)} · <code>{escape(claim.code)}</code>{escape(sure)}</div>',
        f"<h3>{escape(claim.claim)}</h3>",
    ]
    if claim.arithmetic:
        parts.append(f'<ul class="sum">{"".join(f"<li>{escape(part)}</li>" for part in claim.arithmetic)}</ul>')
    if claim.evidence:
        seen = "".join(f"<li>{escape(line)}</li>" for line in claim.evidence)
        parts.append(f"<details open><summary>evidence</summary><ul>{seen}</ul></details>")
    if claim.next_action:
        parts.append(f'<p class="next">{escape(claim.next_action)}</p>')
    return "".join([*parts, "</article>"])
