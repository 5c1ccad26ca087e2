"""The same sections as Markdown and as one self-contained HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Section(NamedTuple):
    """A heading, words, and a table; without rows there is none."""

    title: str
    words: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def markdown_page(title: str, sections: Sequence[Section], plots: Sequence[str] = ()) -> str:
    """A page in Markdown; ``plots`` are paths beside it."""
    parts = [f"# {title}", *(f"![{Path(plot).stem}]({plot})" for plot in plots)]
    for section in sections:
        parts += [f"## {section.title}", section.words]
        if section.rows:
            lines = [section.header, ["---", *["---:"] * (len(section.header) - 1)], *section.rows]
            parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts)


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:860px;margin:2rem auto;padding:0 1rem;color:#1c2733}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .8rem;border-bottom:1px solid #d5dae0;"
    "text-align:right}th:first-child,td:first-child{text-align:left}img{max-width:100%}"
)


def html_page(title: str, sections: Sequence[Section], plots: Sequence[Path] = ()) -> str:
    """A page in HTML with the plots in it, which needs no other file."""
    body = [f"<h1>{html.escape(title)}</h1>"]
    for plot in plots:
        data = base64.b64encode(plot.read_bytes()).decode()
        body.append(f'<img alt="{plot.stem}" src="data:image/png;base64,{data}">')
    for section in sections:
        body.append(f"<h2>{html.escape(section.title)}</h2>\n<p>{html.escape(section.words)}</p>")
        if section.rows:
            cells = ["".join(f"<th>{html.escape(cell)}</th>" for cell in section.header)]
            cells += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in section.rows]
            body.append("<table>\n" + "\n".join(f"<tr>{row}</tr>" for row in cells) + "\n</table>")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>"
    )
