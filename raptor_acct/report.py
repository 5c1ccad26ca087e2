"""Text that people read."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that line up in a terminal: the first to the left, the others to the right.

    >>> print(table(["stream", "sigma"], [["shared", "0.741"], ["expert", "2.843"]]))
    stream  sigma
    ------  -----
    shared  0.741
    expert  2.843
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    return "\n".join(lines)
