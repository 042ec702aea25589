"""What every test finds: signals as a terminal leaves them, and properties on the same examples each time.

Under nohup, or in the background of a shell, some signals are ignored, and every process that a test starts
would inherit that. New examples for properties are drawn with HYPOTHESIS_PROFILE=search.

Torch's store asks the name server for the name of each address that it connects to, 127.0.0.1 included. Where
one question in ten is lost, as on some machines of clouds, that is 5 s each time; here the second one follows
after 1 s.
"""

import os
import signal

from hypothesis import HealthCheck, settings

# How fast examples are drawn says how busy the machine is.
BUSY = [HealthCheck.too_slow]
settings.register_profile("repeatable", derandomize=True, suppress_health_check=BUSY)
settings.register_profile("search", derandomize=False, suppress_health_check=BUSY)


def pytest_configure():
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:5")
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
