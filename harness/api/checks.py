"""`harness check` for networks: all rules, those of what is logged to MLflow too."""

from harness.methods import known_methods, load_method
from harness.methods.base import OneShotMethod
from harness.models.build import check_samples
from harness.networks import own_network, small_network
from harness.replaying.conformance import RuleCheck, tried
from harness.replaying.method_rules import MethodRule, shape_for
from harness.replaying.network_rules import network_rules
from harness.schema.networks import NetworkSettings, OwnNetwork
from harness.schema.settings import SearchSpace
from harness.tracking.models import predicts_elsewhere


def check_network(name: str, space: SearchSpace) -> list[RuleCheck]:
    """Of one of ours by its name, or a user's own file, in the small size that its class names."""
    settings = _small(name)
    check_samples(settings, shape_for(settings))
    methods = {each: load_method(each)[1] for each in known_methods()}
    one_shots = {each: method for each, method in methods.items() if isinstance(method, OneShotMethod)}
    rules = network_rules(settings, space, one_shots)
    elsewhere = "it loads and predicts where this package is not installed"
    return tried([*rules, MethodRule(elsewhere, lambda: predicts_elsewhere(settings), rules[0].name)])


def _small(name: str) -> NetworkSettings:
    own = own_network({"kind": name})
    if own is None:
        return small_network(name)
    network_class, kind, source = own
    options = network_class(**network_class.small).model_dump(mode="json")
    return OwnNetwork.model_validate_json(OwnNetwork(kind=kind, source=source, **options).model_dump_json())
