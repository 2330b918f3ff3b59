"""Names of curves and tags that leave this program, one sentence each; names of measures are in `measures.py`."""

from typing import Final, get_args

from harness.schema.settings import Rule

PREFIX: Final = "depth-search"


def experiment_name(name: str) -> str:
    """MLflow's experiment of a space or a study, unless another one is asked for."""
    return f"{PREFIX}/{name}"


def model_name(space: str) -> str:
    """Under which MLflow registers the winner, unless another is asked for; it takes no / there."""
    return f"{PREFIX}-{space}"


# --- curves of one trial (MLflow child run, step = epoch) and of one search (step = cost or depth) -------------------
TRAIN_OBJECTIVE: Final = "train/objective"
VAL_LOG_LIKELIHOOD: Final = "val/log_likelihood"
VAL_ACCURACY: Final = "val/accuracy"
VAL_ECE: Final = "val/ece"
COST_PREFIX: Final = "cost/"  # + a phase or a counter of the trial's cost
TRAIN_D_OPT: Final = "train/d_opt"
ANYTIME_VAL_LOG_LIKELIHOOD: Final = "anytime/val_log_likelihood"
DEPTH_POSTERIOR: Final = "depth/posterior"
DEPTH_VAL_LOG_LIKELIHOOD: Final = "depth/val_log_likelihood"
DEPTH_TEST_LOG_LIKELIHOOD: Final = "depth/test_log_likelihood"
DEPTH_BY_RULE: Final[dict[str, str]] = {rule: f"d_opt_by_{rule}" for rule in get_args(Rule)}  # one number each

CURVES: Final[dict[str, str]] = {
    TRAIN_OBJECTIVE: "Objective per sample of the epoch's mini-batches: log-likelihood for a fixed depth, the one-shot "
    "network's own (such as an ELBO) for a learnt depth.",
    VAL_LOG_LIKELIHOOD: "Mean validation log-likelihood of the predictive distribution.",
    VAL_ACCURACY: "Validation accuracy of the predictive distribution.",
    VAL_ECE: "Validation expected calibration error.",
    TRAIN_D_OPT: "Learnt depth: the depth that the space's rule reads from q at this epoch.",
    ANYTIME_VAL_LOG_LIKELIHOOD: "Best validation log-likelihood so far, against the search's cost so far "
    "(step = device-milliseconds).",
    DEPTH_POSTERIOR: "Learnt depth: q(d), the weight of each depth (step = depth); a posterior for some methods.",
    DEPTH_VAL_LOG_LIKELIHOOD: "Learnt depth: validation log-likelihood of each depth alone (step = depth).",
    DEPTH_TEST_LOG_LIKELIHOOD: "Test log-likelihood of each depth (step = depth): of stand-alone networks where all "
    "depths were trained, read out of the one network where the depth is learnt. Analysis only: nothing was chosen by "
    "it.",
    **{key: f"Learnt depth: what the rule {rule} reads from q." for rule, key in DEPTH_BY_RULE.items()},
}

# --- tags ---------------------------------------------------------------------------------------------------------
TAG_KIND: Final = "kind"  # one of the KIND_ values
KIND_SEARCH: Final = "search"  # a parent run: one method on one seed
KIND_TRIAL: Final = "trial"  # a child run
KIND_MEAN: Final = "mean"  # a run that shows a method's mean over its seeds
KIND_REPORT: Final = "report"  # the run that holds report.html, one per experiment
KIND_SUPERSEDED: Final = "superseded"  # a run whose records were replaced by newer ones of the same key
TAG_SEARCH: Final = "search"  # the method's name
TAG_SEED: Final = "seed"
TAG_SPACE: Final = "space"
TAG_REPLAYED: Final = "replayed"  # "true": its search was replayed from recorded trials, not trained
TAG_UNIT_KEY: Final = "harness.unit_key"  # makes writing idempotent: one run per key
TAG_FINGERPRINT: Final = "harness.fingerprint"  # tells which records a run shows
TAG_OURS: Final = "harness.space"  # of an experiment or a registered model: it is this program's
TAG_MODEL: Final = "harness.model"  # the URI of the logged model: the network that the search chose
