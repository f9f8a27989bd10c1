"""A small table: what was measured, what it stands beside, the ratio, and the aim."""


class ResultTable:
    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[tuple[str, str, str, str, str]] = []

    def row(self, what: str, ours: str, beside: str, ratio: float | None, aim: str) -> None:
        self.rows.append((what, ours, beside, "" if ratio is None else f"{ratio:.2f}", aim))

    def __str__(self) -> str:
        rows = [("", "ours", "beside", "ratio", "aim"), *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.title, *("  " + line for line in lines), ""])
