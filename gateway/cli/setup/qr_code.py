"""A link as a picture that a phone reads from the screen."""

import io


def qr_code(link: str) -> str:
    """In half blocks, two rows of modules to a line of text, for a terminal with light letters on a dark ground."""
    import segno

    drawn = io.StringIO()
    segno.make_qr(link, error="l").terminal(drawn, border=2, compact=True)
    return drawn.getvalue().rstrip("\n")
