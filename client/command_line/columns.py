"""Plain text in columns."""

from collections.abc import Sequence

GAP = "  "


def columns(rows: Sequence[Sequence[str]], alignment: str) -> str:
    """Lines of cells, each column as wide as its widest; `alignment` has `<` or `>` for each column.

    >>> print(columns([["model", "images"], ["pipeline", "12"]], "<>"))
    model     images
    pipeline      12
    """
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join(
        GAP.join(f"{cell:{side}{width}}" for cell, side, width in zip(row, alignment, widths, strict=True)).rstrip()
        for row in rows
    )


def number(value: float | None) -> str:
    """Three digits or all before the point; a dash where there is none.

    >>> [number(value) for value in (None, 0, 0.0123, 4.567, 45.67, 4567.8)]
    ['-', '0', '0.01', '4.57', '45.7', '4,568']
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"
