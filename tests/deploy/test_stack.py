"""deploy/aws/stack.yaml on a simulated AWS: made twice, what its roles allow, deleted; `harness cluster fill`."""

import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import main
from harness.cluster.cluster_file import check_cluster_file, read_cluster_file
from harness.cluster.this_machine import check_account
from tests.cluster.rig import wait_until
from tests.deploy.policies import allows

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto")

ROOT = Path(__file__).parents[2]
STACK = ROOT / "deploy" / "aws" / "stack.yaml"
AWS_FILE = ROOT / "ray_cluster.yaml"
REGION, ACCOUNT, ME = "eu-west-1", "123456789012", "203.0.113.7/32"
NAME = "depth-search"
IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, Any]]:
    """Clients by service. The image comes from a parameter of our own: the simulated AWS lacks Amazon's."""
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes its key pair to ~/.ssh
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    from ray.autoscaler._private.aws import utils

    utils.resource_cache.cache_clear()
    with moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        services = "cloudformation", "ec2", "iam", "s3", "ssm"
        clients = {name: boto3.client(name, region_name=REGION) for name in services}
        image = clients["ec2"].describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        clients["ssm"].put_parameter(Name="/ours/image", Value=image, Type="String")
        yield clients
    utils.resource_cache.cache_clear()


def asked_for(stack: str = NAME) -> dict[str, Any]:
    template = STACK.read_text().replace(IMAGE, "/ours/image")
    address = {"ParameterKey": "MyAddress", "ParameterValue": ME}
    asked = {"StackName": stack, "TemplateBody": template, "Parameters": [address]}
    return asked | {"Capabilities": ["CAPABILITY_IAM"]}


def as_written() -> dict[str, Any]:
    """The template, references as their names."""
    return dict(yaml.safe_load(re.sub(r"!(Ref|Sub|GetAtt)", "", STACK.read_text())))


def made(aws: Mapping[str, Any]) -> dict[str, str]:
    """The stack's resources by their names in the template. Bucket policies are not simulated."""
    aws["cloudformation"].create_stack(**asked_for())
    found = aws["cloudformation"].describe_stack_resources(StackName=NAME)["StackResources"]
    return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found if "PhysicalResourceId" in each}


def policies_of(aws: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    """All that a role has, attached or its own."""
    iam, found = aws["iam"], []
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)
        found.append(document["PolicyVersion"]["Document"])
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        found.append(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
    # The simulated AWS hands some over as the text that it keeps.
    return [each if isinstance(each, dict) else yaml.safe_load(each) for each in found]


def arn(kind: str, name: str = "*", account: str = ACCOUNT) -> str:
    return f"arn:aws:ec2:{REGION}:{account}:{kind}/{name}"


# --- the stack ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_made_twice_it_stays_the_same_and_deleting_it_keeps_the_bucket(aws: Mapping[str, Any]) -> None:
    assert IMAGE in STACK.read_text()
    first = made(aws)
    change = aws["cloudformation"].create_change_set(ChangeSetName="again", ChangeSetType="UPDATE", **asked_for())
    found = aws["cloudformation"].describe_change_set(ChangeSetName=change["Id"], StackName=NAME)
    assert found["Changes"] == []
    aws["s3"].put_object(Bucket=first["Bucket"], Key="depth-search/plan.json", Body=b"{}")
    kept = as_written()["Resources"]
    assert [name for name, each in kept.items() if each.get("DeletionPolicy") == "Retain"] == ["Bucket"]
    # AWS deletes what refers to a thing before the thing; the simulated one would begin with the roles.
    for role in (first["HeadRole"], first["WorkerRole"]):
        aws["iam"].detach_role_policy(RoleName=role, PolicyArn=first["UseBucket"])
    aws["cloudformation"].delete_stack(StackName=NAME)
    assert aws["s3"].get_object(Bucket=first["Bucket"], Key="depth-search/plan.json")["Body"].read() == b"{}"
    assert aws["iam"].list_roles()["Roles"] == [] or first["HeadRole"] not in str(aws["iam"].list_roles())


@pytest.mark.slow
def test_nothing_is_open_and_the_bucket_is_encrypted_and_private(aws: Mapping[str, Any]) -> None:
    names = made(aws)
    [group] = aws["ec2"].describe_security_groups(GroupIds=[names["Group"]])["SecurityGroups"]
    rules = [
        (rule.get("FromPort"), [each["CidrIp"] for each in rule["IpRanges"]], rule["UserIdGroupPairs"])
        for rule in group["IpPermissions"]
    ]
    assert [(port, ranges) for port, ranges, _ in rules if ranges] == [(22, [ME])]
    assert [pair["GroupId"] for _, _, pairs in rules for pair in pairs] == [names["Group"]]
    assert not any(rule.get("Ipv6Ranges") for rule in group["IpPermissions"])
    bucket, s3 = names["Bucket"], aws["s3"]
    [rule] = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    # What is not simulated, as the template asks for them.
    template = as_written()["Resources"]
    [only] = template["OnlyEncrypted"]["Properties"]["PolicyDocument"]["Statement"]
    assert (only["Effect"], only["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert template["Bucket"]["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    lifecycle = {each["Id"]: each for each in template["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]}
    assert lifecycle["unfinished-uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert not any(key.startswith("Expiration") for rule in lifecycle.values() for key in rule), (
        "results would disappear"
    )
    block = template["Bucket"]["Properties"]["PublicAccessBlockConfiguration"]
    assert block == dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    )


@pytest.mark.slow
def test_workers_may_use_the_bucket_and_nothing_else(aws: Mapping[str, Any]) -> None:
    names = made(aws)
    worker = policies_of(aws, names["WorkerRole"])
    bucket = f"arn:aws:s3:::{names['Bucket']}"
    for action in ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload"):
        assert allows(worker, f"s3:{action}", f"{bucket}/depth-search/plan.json")
        assert not allows(worker, f"s3:{action}", "arn:aws:s3:::another/plan.json")
    assert allows(worker, "s3:ListBucket", bucket) and not allows(worker, "s3:DeleteBucket", bucket)
    assert not allows(worker, "s3:PutBucketPolicy", bucket)
    actions = {action for policy in worker for each in policy["Statement"] for action in each["Action"]}
    assert {action.split(":")[0] for action in actions} == {"s3"} and not any("*" in action for action in actions)


@pytest.mark.slow
def test_the_head_starts_and_ends_workers_of_its_cluster_and_types_only(aws: Mapping[str, Any]) -> None:
    names = made(aws)
    head = policies_of(aws, names["HeadRole"])
    ours = {"aws__RequestTag_ray_cluster_name": NAME}

    def starts(kind: str = "g4dn.xlarge", **tags: str) -> bool:
        return allows(head, "ec2:RunInstances", arn("instance"), ec2__InstanceType=kind, **tags)

    types = read_cluster_file(AWS_FILE)["available_node_types"]
    workers = [node["node_config"]["InstanceType"] for name, node in types.items() if name != "head"]
    assert all(starts(kind, **ours) for kind in workers), "the file has a type that the head may not start"
    assert not starts("p5.48xlarge", **ours) and not starts(types["head"]["node_config"]["InstanceType"], **ours)
    assert not starts() and not starts(aws__RequestTag_ray_cluster_name="another")
    for kind in ("network-interface", "subnet", "key-pair"):
        assert allows(head, "ec2:RunInstances", arn(kind))
    assert allows(head, "ec2:RunInstances", arn("image", account=""))
    assert allows(head, "ec2:RunInstances", arn("security-group", names["Group"]))
    assert not allows(head, "ec2:RunInstances", arn("security-group", "sg-open"))
    assert allows(head, "ec2:RunInstances", arn("volume"), ec2__Encrypted="true")
    assert not allows(head, "ec2:RunInstances", arn("volume"), ec2__Encrypted="false")
    for action in ("TerminateInstances", "StopInstances", "CreateTags"):
        assert allows(head, f"ec2:{action}", arn("instance"), aws__ResourceTag_ray_cluster_name=NAME)
        assert not allows(head, f"ec2:{action}", arn("instance"), aws__ResourceTag_ray_cluster_name="another")
        assert not allows(head, f"ec2:{action}", arn("instance"))
    worker_role = f"arn:aws:iam::{ACCOUNT}:role/{names['WorkerRole']}"
    passed = {"iam__PassedToService": "ec2.amazonaws.com"}
    assert allows(head, "iam:PassRole", worker_role, **passed)
    assert not allows(head, "iam:PassRole", worker_role.replace("WorkerRole", "HeadRole"), **passed)
    assert not allows(head, "iam:CreateRole", worker_role)


# --- fill -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_filled_file_passes_the_doctor_and_a_bootstrap(
    aws: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray.autoscaler._private.commands import _bootstrap_config
    from ray.autoscaler._private.providers import _get_node_provider

    names = made(aws)
    path = tmp_path / "ray_cluster.yaml"
    path.write_text(AWS_FILE.read_text())
    for _ in range(2):  # a second time, over its own values
        with pytest.raises(SystemExit, match="0"):
            main(["cluster", "fill", NAME, str(path), "--region", REGION])
    assert f"Group          {names['Group']}" in capsys.readouterr().out
    before, after = AWS_FILE.read_text().splitlines(), path.read_text().splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == 6 and "EDIT-ME" not in "".join(changed)
    assert "# 2 yours: ssh from your address only" in "".join(changed), "comments are gone"
    assert [check.name for check in check_cluster_file(path) if not check.ok] == []
    config = read_cluster_file(path)
    assert all(check.ok for check in check_account(config))

    booted = _bootstrap_config(config, no_config_cache=True)
    provider = _get_node_provider(booted["provider"], booted["cluster_name"])
    for node in booted["available_node_types"].values():
        provider.create_node(node["node_config"], {"ray-node-kind": "worker"}, 1)
    machines = [each for batch in aws["ec2"].describe_instances()["Reservations"] for each in batch["Instances"]]
    profiles = {each["InstanceType"]: each["IamInstanceProfile"]["Arn"].split("/")[-1] for each in machines}
    worker = names["WorkerProfile"]
    assert profiles == {"m5.xlarge": names["HeadProfile"], "g4dn.xlarge": worker, "c6i.2xlarge": worker}


@pytest.mark.slow
def test_fill_says_what_is_wrong_in_a_sentence(
    aws: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(AWS_FILE.read_text())

    def refused(*args: str) -> str:
        with pytest.raises(SystemExit, match="2"):
            main(["cluster", "fill", *args])
        assert path.read_text() == AWS_FILE.read_text()
        return capsys.readouterr().err

    assert "AWS has no stack 'nothing' for you in us-west-2 (--region)" in refused("nothing", str(path))
    other = '{"Resources": {"B": {"Type": "AWS::S3::Bucket"}}, "Outputs": {"Group": {"Value": "sg-1"}}}'
    aws["cloudformation"].create_stack(StackName="other", TemplateBody=other)
    assert "has no output ClusterName, Region, Image" in refused("other", str(path), "--region", REGION)


# --- machines end themselves ------------------------------------------------------------------------------------------

STUBS = {
    "systemd-run": 'shift; exec "$@"',
    "sleep": "exec /bin/sleep 0.01",
    "poweroff": 'echo off >> "$LOG"; kill -9 $PPID',
    "ss": 'if [ -e "$TALKS" ]; then echo "0 0 10.0.0.2:40000 10.0.0.1:6379"; fi; echo look >> "$LOG"',
    "pgrep": '[ -e "$RUNS" ]',
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "busy"), [("end_when_alone", "TALKS"), ("end_when_idle", "TALKS"), ("end_when_idle", "RUNS")]
)
def test_a_machine_that_nobody_needs_powers_off(script: str, busy: str, tmp_path: Path) -> None:
    """The text of the cluster file itself, with a minute made short and the programs that it calls replaced."""
    text = yaml.safe_load(AWS_FILE.read_text())["metadata"][script]
    (tmp_path / "bin").mkdir()
    for name, body in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    names = {name: tmp_path / name.lower() for name in ("LOG", "TALKS", "RUNS")}
    names[busy].touch()
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", **{name: str(path) for name, path in names.items()}}
    (tmp_path / "script").write_text(text)
    (tmp_path / "script").chmod(stat.S_IRWXU)
    started = subprocess.Popen([str(tmp_path / "script")], env=env)
    try:
        minutes = 80  # far more than either waits for
        log = names["LOG"]
        if busy == "TALKS":
            wait_until("looks", lambda: log.exists() and log.read_text().count("look") > minutes, 60)
            assert started.poll() is None and "off" not in log.read_text()
        names[busy].unlink()
        assert started.wait(timeout=60) != 0
        assert log.read_text().count("off") == 1
    finally:
        started.kill()


def test_what_tells_that_the_head_is_there_is_a_real_connection() -> None:
    """`ss` as the file calls it, beside a connection to port 6379 of a machine that is this one."""
    import socket

    text = yaml.safe_load(AWS_FILE.read_text())["metadata"]["end_when_alone"]
    [call] = re.findall(r"ss [^|]+\| grep -q \.", text)
    see = ["sh", "-c", call.replace("6379", "{port}")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        look = [part.format(port=port) for part in see]
        assert subprocess.run(look).returncode == 1
        with socket.create_connection(("127.0.0.1", port)):
            assert subprocess.run(look).returncode == 0
