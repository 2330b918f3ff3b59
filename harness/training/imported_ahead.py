"""What a worker imports ahead of its first trial, as soon as Ray starts it.

It is nearly all modules, which are no garbage: the collector would look through them again and again.
"""

import gc

gc.disable()
from harness.training import train  # noqa: E402, F401

gc.freeze()
gc.enable()
