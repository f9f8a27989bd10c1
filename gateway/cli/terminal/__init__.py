"""`hermes chat` and the terminal below a gateway in the foreground."""
