"""Signals as a terminal leaves them.

Under nohup, or in the background of a shell, some are ignored, and every process that a test starts would
inherit that.
"""

import signal


def pytest_configure():
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
