"""Small pieces of HTML for notebooks. No scripts, no requests, no style sheets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_CELL = "text-align:left;padding:2px 8px"
_NUMBER = "text-align:right;padding:2px 8px;font-variant-numeric:tabular-nums"
_PRE = "margin:0 0 8px 0;line-height:1.3;white-space:pre-wrap"


def number(value: Any) -> str:
    """Formats a number with four digits."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table; numbers are on the right."""

    def cell(value: Any) -> str:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f'<td style="{_NUMBER}">{number(value)}</td>'
        return f'<td style="{_CELL}">{escape("" if value is None else str(value))}</td>'

    top = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def pre(text: str) -> str:
    """Returns text as it is."""
    return f'<pre style="{_PRE}">{escape(text)}</pre>'
