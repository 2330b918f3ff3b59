"""Searches while they run, and what they leave on disk.

`search` asks and tells a method, `unit` is one method on one seed, `ledger` its events, `result` its outcome,
`store` its folder. `runner` drives many units on Ray Tune (`side_by_side`, `worker`, `messages`) in a
`ray_session`, `replay` drives them on a simulated clock.
"""

import os
import sys

from harness.backends import ON_LOOPBACK

# Before Ray is imported: no usage statistics, no output of its own, no state files (the ledgers are the state).
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1000000")
if "ray" not in sys.modules:  # else it is too late; ray_door takes it back when Ray has read it
    os.environ.setdefault(*ON_LOOPBACK)
