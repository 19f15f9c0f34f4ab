"""A child process that Ctrl-C reaches."""

import signal


def heed_interrupts() -> None:
    """``preexec_fn`` of a child: a shell's background jobs ignore SIGINT, and so does what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
