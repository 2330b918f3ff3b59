"""Does one learnt-depth run replace a search over depths? A harness that measures it."""

__version__ = "0.1.0"
