"""The AWS file against a simulated AWS: Ray's whole bootstrap, machines started from it, the checks of the account."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cluster.checks import Check
from harness.cluster.this_machine import check_account

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto")

pytestmark = pytest.mark.slow  # a simulated AWS takes seconds to start

AWS_FILE = Path(__file__).parents[2] / "ray_cluster.yaml"
REGION = "us-west-2"
ME = "203.0.113.7/32"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes its key pair to ~/.ssh
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    from ray.autoscaler._private.aws import utils

    utils.resource_cache.cache_clear()
    with moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        yield boto3.client("ec2", region_name=REGION)
    utils.resource_cache.cache_clear()


def make_group(ec2: Any, ssh_from: str = ME, between_members: bool = True) -> str:
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group: str = ec2.create_security_group(GroupName="depth-search", Description="d", VpcId=vpc)["GroupId"]
    rules = [{"FromPort": 22, "ToPort": 22, "IpProtocol": "tcp", "IpRanges": [{"CidrIp": ssh_from}]}]
    if between_members:
        rules.append({"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]})
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rules)
    return group


def filled_in(group: str, image: str = "ami-0123") -> dict[str, Any]:
    text = AWS_FILE.read_text().replace("ami-EDIT-ME", image).replace("sg-EDIT-ME", group)
    config = yaml.safe_load(text.replace("s3://EDIT-ME", "s3://bucket"))
    assert isinstance(config, dict)
    return config


def inbound(ec2: Any) -> dict[str, set[tuple[int, str]]]:
    """(port, source) of every rule that names addresses, per group."""
    groups = ec2.describe_security_groups()["SecurityGroups"]
    return {
        group["GroupId"]: {
            (rule.get("FromPort", -1), cidr["CidrIp"]) for rule in group["IpPermissions"] for cidr in rule["IpRanges"]
        }
        for group in groups
    }


def test_bootstrap_starts_closed_machines(aws: Any) -> None:
    from ray.autoscaler._private.commands import _bootstrap_config
    from ray.autoscaler._private.providers import _get_node_provider

    group = make_group(aws)
    before = inbound(aws)
    image = aws.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    config = _bootstrap_config(filled_in(group, image), no_config_cache=True)

    assert inbound(aws) == before, "Ray added a security group or a rule"
    assert before[group] == {(22, ME)}
    types = config["available_node_types"]
    assert {name: (node["min_workers"], node["max_workers"]) for name, node in types.items()} == {
        "head": (0, 0),
        "gpu_worker": (0, 4),
        "cpu_worker": (0, 4),
    }
    assert types["head"]["resources"]["CPU"] == 0
    assert types["gpu_worker"]["resources"]["GPU"] == 1 and "GPU" not in types["cpu_worker"]["resources"]

    iam = boto3.client("iam")
    profiles = {
        node["node_config"]["InstanceType"]: node["node_config"]["IamInstanceProfile"]["Name"]
        for node in types.values()
    }
    for profile in set(profiles.values()):
        iam.create_instance_profile(InstanceProfileName=profile)
    assert profiles["m5.xlarge"] != profiles["g4dn.xlarge"] == profiles["c6i.2xlarge"]
    provider = _get_node_provider(config["provider"], config["cluster_name"])
    for node in types.values():
        provider.create_node(node["node_config"], {"ray-node-kind": "worker"}, 1)
    machines = [machine for batch in aws.describe_instances()["Reservations"] for machine in batch["Instances"]]
    assert sorted(machine["InstanceType"] for machine in machines) == ["c6i.2xlarge", "g4dn.xlarge", "m5.xlarge"]
    for machine in machines:
        assert [entry["GroupId"] for entry in machine["SecurityGroups"]] == [group]
        assert machine["IamInstanceProfile"]["Arn"].endswith(profiles[machine["InstanceType"]])


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_account_with_a_closed_group_passes(aws: Any) -> None:
    checks = check_account(filled_in(make_group(aws)))
    assert [check.name for check in checks] == ["aws", "group rules"]
    assert all(check.ok for check in checks)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [({"ssh_from": "0.0.0.0/0"}, "port 22 to 0.0.0.0/0"), ({"between_members": False}, "talk to each other")],
)
def test_account_with_a_wrong_group_is_caught(aws: Any, kwargs: dict[str, Any], words: str) -> None:
    check = by_name(check_account(filled_in(make_group(aws, **kwargs))))["group rules"]
    assert not check.ok and words in check.detail


def test_group_that_does_not_exist_is_caught(aws: Any) -> None:
    check = by_name(check_account(filled_in("sg-0123")))["group rules"]
    assert not check.ok and "sg-0123 does not exist in us-west-2" in check.detail
