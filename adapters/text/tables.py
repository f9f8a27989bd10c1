"""Tables where a platform has none: a grid if it is narrow enough for a phone, else one record below the other."""

from adapters.text.blocks import Table

GRID_COLUMNS = 44
"""A wider table wraps on a phone."""


def as_grid(table: Table) -> str | None:
    """Returns the rows with their columns aligned, for a font of equal widths. None: too wide."""
    rows = table.rows if table.continued else (table.header, *table.rows)
    # Measured with the header also where this is the rest of a table that was cut: its columns stay as wide as before.
    widths = [max(len(row[column]) for row in (table.header, *table.rows)) for column in range(len(table.header))]
    if sum(widths) + 2 * len(widths) > GRID_COLUMNS:
        return None
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_records(table: Table) -> str:
    """Returns every row as lines `column: cell`, with an empty line between two rows."""
    return "\n\n".join(
        "\n".join(f"{name}: {cell}" for name, cell in zip(table.header, row, strict=True) if cell) for row in table.rows
    )
