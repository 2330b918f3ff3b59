"""What trials need, imported by a worker before its first one.

Nearly all of it is modules, which are no garbage: the collector would look through them again and again, for a seventh
of the time that it takes.
"""

import gc

gc.disable()
try:
    import harness.running.worker
    import harness.training.train  # noqa: F401
finally:
    gc.freeze()
    gc.enable()
