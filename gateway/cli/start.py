"""The entry point of the program. It ends on Ctrl-C without a traceback, also while modules are being loaded, and calls `main.py`."""

import signal

_USUAL = signal.getsignal(signal.SIGINT)
if _USUAL is signal.default_int_handler:  # a shell may have it ignored, for what runs in the background
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    from gateway.cli.main import main as run

    signal.signal(signal.SIGINT, _USUAL)
    run()
