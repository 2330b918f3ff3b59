"""Every name that leaves this program: metrics, params and tags, one sentence each. Nobody writes them as literals."""

from typing import Final

# --- headline measures of one search (method × seed), on the MLflow parent run -------------------------------------
COST_DEVICE_SECONDS: Final = "cost_device_seconds"
COST_TRAIN_SECONDS: Final = "cost_train_seconds"
COST_TFLOP: Final = "cost_tflop"
D_OPT: Final = "d_opt"
TEST_ACCURACY: Final = "test_accuracy"
TEST_LOG_LIKELIHOOD: Final = "test_log_likelihood"
TEST_ECE: Final = "test_ece"
TEST_BRIER: Final = "test_brier"
TRIALS: Final = "trials"
WALL_SECONDS: Final = "wall_seconds"

HEADLINE: Final[dict[str, str]] = {
    COST_DEVICE_SECONDS: "Seconds that all trials of the search held their devices, times devices held; failed, "
    "stopped and repeated work included.",
    COST_TRAIN_SECONDS: "Seconds spent in training steps, all trials of the search.",
    COST_TFLOP: "Floating point operations of training and validation, all trials, in 10^12; free of the hardware.",
    D_OPT: "The depth the search chose: the LDN's by its rule, a fixed-depth search's by validation log-likelihood.",
    TEST_ACCURACY: "Share of test samples whose most probable class is the right one, for the chosen network.",
    TEST_LOG_LIKELIHOOD: "Mean log-probability of the right class on the test set, in nats; higher is better.",
    TEST_ECE: "Expected calibration error on the test set: top-label confidence, 15 bins; lower is better.",
    TEST_BRIER: "Mean squared distance of the predicted probabilities from the right class; lower is better.",
    TRIALS: "Trials that the search started.",
    WALL_SECONDS: "Seconds from the search's first trial start to its last trial end, on this run's workers.",
}

# --- what else a parent run holds, so that a cost can be looked at from several sides -------------------------------
WORKER_START_DEVICE_SECONDS: Final = "worker_start_device_seconds"
DRIVER_SECONDS: Final = "driver_seconds"
POSTERIOR_GAP_NATS: Final = "posterior_gap_nats"
D_OPT_EXACT: Final = "d_opt_exact"
REFIT_DEVICE_SECONDS: Final = "refit_device_seconds"
REFIT_TEST_ACCURACY: Final = "refit_test_accuracy"
REFIT_TEST_LOG_LIKELIHOOD: Final = "refit_test_log_likelihood"

DETAILS: Final[dict[str, str]] = {
    WORKER_START_DEVICE_SECONDS: "Device-seconds in which workers started for the search; no part of its cost.",
    DRIVER_SECONDS: "Seconds of the driver's own work (searcher, scheduler, tracking); no part of the search's cost.",
    POSTERIOR_GAP_NATS: "LDN: how far the ELBO lies below its maximum over q for the final weights; 0 is converged.",
    D_OPT_EXACT: "LDN: the most probable depth of the exact posterior for the final weights.",
    REFIT_DEVICE_SECONDS: "Device-seconds of training the choice again on train + validation; no search cost.",
    REFIT_TEST_ACCURACY: "Test accuracy of the refitted network.",
    REFIT_TEST_LOG_LIKELIHOOD: "Test log-likelihood of the refitted network.",
}

# --- curves of one trial (MLflow child run, step = epoch) and of one search (step = cost) --------------------------
TRAIN_OBJECTIVE: Final = "train/objective"
VAL_LOG_LIKELIHOOD: Final = "val/log_likelihood"
VAL_ACCURACY: Final = "val/accuracy"
VAL_ECE: Final = "val/ece"
COST_PREFIX: Final = "cost/"  # + a phase or a counter of the ledger
TRAIN_D_OPT: Final = "train/d_opt"
ANYTIME_VAL_LOG_LIKELIHOOD: Final = "anytime/val_log_likelihood"
DEPTH_POSTERIOR: Final = "depth/posterior"
DEPTH_TEST_LOG_LIKELIHOOD: Final = "depth/test_log_likelihood"

CURVES: Final[dict[str, str]] = {
    TRAIN_OBJECTIVE: "ELBO per sample (LDN) or log-likelihood (fixed depth) of the epoch's mini-batches.",
    VAL_LOG_LIKELIHOOD: "Mean validation log-likelihood of the predictive distribution.",
    VAL_ACCURACY: "Validation accuracy of the predictive distribution.",
    VAL_ECE: "Validation expected calibration error.",
    TRAIN_D_OPT: "LDN: the depth that the space's rule reads from q at this epoch.",
    ANYTIME_VAL_LOG_LIKELIHOOD: "Best validation log-likelihood so far, against the search's cost so far "
    "(step = device-milliseconds).",
    DEPTH_POSTERIOR: "LDN: q(d), the learnt probability of each depth (step = depth).",
    DEPTH_TEST_LOG_LIKELIHOOD: "Test log-likelihood of each depth (step = depth): stand-alone networks for grid, "
    "read out of the one network for the LDN; analysis only, nothing was chosen by it.",
}

# --- tags ---------------------------------------------------------------------------------------------------------
TAG_KIND: Final = "kind"  # one of the KIND_ values
KIND_SEARCH: Final = "search"  # a parent run: one method on one seed
KIND_TRIAL: Final = "trial"  # a child run
KIND_REPORT: Final = "report"  # the run that holds report.html, one per experiment
KIND_SUPERSEDED: Final = "superseded"  # a run whose records were replaced by newer ones of the same key
TAG_SEARCH: Final = "search"  # the method's name
TAG_SEED: Final = "seed"
TAG_SPACE: Final = "space"
TAG_UNIT_KEY: Final = "harness.unit_key"  # makes writing idempotent: one run per key
TAG_FINGERPRINT: Final = "harness.fingerprint"  # tells which records a run shows
TAG_MODEL: Final = "harness.model"  # the URI of the winner's logged model
