"""`ray_cluster.yaml` is right and closed, and `harness doctor` sees each planted mistake."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import main
from harness.cluster.checks import Check
from harness.cluster.cluster_file import check_cluster_file, commands, open_rules, read_cluster_file
from harness.cluster.versions import pinned_ray

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "ray_cluster.yaml", ROOT / "ray_cluster_local.yaml"]
AWS, LOCAL = FILES
Edit = Callable[[dict[str, Any]], object]


def failed(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks if not check.ok}


def with_mistake(path: Path, tmp_path: Path, edit: Edit) -> dict[str, Check]:
    """What fails in a copy of the file after one more edit, the values to fill in left aside."""
    config = copy.deepcopy(yaml.safe_load(path.read_text()))
    edit(config)
    edited = tmp_path / "cluster.yaml"
    edited.write_text(yaml.safe_dump(config))
    return {name: check for name, check in failed(check_cluster_file(edited)).items() if name != "values"}


def replaced(config: dict[str, Any], key: str, old: str, new: str) -> None:
    before = list(config[key])
    config[key] = [command.replace(old, new) for command in before]
    assert config[key] != before, f"the mistake was not planted: no {old!r} in {key}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_shipped_file_needs_nothing_but_its_values(path: Path) -> None:
    assert set(failed(check_cluster_file(path))) == {"values"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_filled_in_file_passes(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    for number in range(text.count("EDIT-ME")):
        text = text.replace("EDIT-ME", f"value{number}", 1)
    (tmp_path / path.name).write_text(text)
    assert failed(check_cluster_file(tmp_path / path.name)) == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_pin_is_that_of_the_constraints(path: Path) -> None:
    wanted = pinned_ray(ROOT / "constraints.txt")
    if wanted is None:
        pytest.skip("no constraints.txt in this tree")
    assert any(f"ray[default,tune]=={wanted}" in command for command in commands(read_cluster_file(path)))


def open_port(config: dict[str, Any]) -> None:
    rule = {"FromPort": 8265, "ToPort": 8265, "IpProtocol": "tcp", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    config["provider"]["security_group"] = {"IpPermissions": [rule]}


MISTAKES: dict[str, tuple[Path, Edit, str, str]] = {
    "open port": (AWS, open_port, "security group", "port 8265 to 0.0.0.0/0"),
    "no group of one's own": (
        AWS,
        lambda c: c["available_node_types"]["gpu_worker"]["node_config"].pop("SecurityGroupIds"),
        "security group",
        "gpu_worker has no SecurityGroupIds",
    ),
    "a worker with the head's rights": (
        AWS,
        lambda c: c["available_node_types"]["gpu_worker"]["node_config"].update(
            IamInstanceProfile={"Name": "head-EDIT-ME"}
        ),
        "rights",
        "gpu_worker has the head's IamInstanceProfile",
    ),
    "a role of Ray's own": (
        AWS,
        lambda c: c["available_node_types"]["head"]["node_config"].pop("IamInstanceProfile"),
        "rights",
        "may do everything with EC2",
    ),
    "a disk that anybody can read": (
        AWS,
        lambda c: c["available_node_types"]["cpu_worker"]["node_config"].update(
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 100}}]
        ),
        "rights",
        "a disk of cpu_worker is not encrypted",
    ),
    "a worker that stays when it is alone": (
        AWS,
        lambda c: c["available_node_types"]["cpu_worker"]["node_config"].pop("UserData"),
        "alone",
        "cpu_worker runs on when the head is gone",
    ),
    "a worker that stops and is billed for its disk": (
        AWS,
        lambda c: c["available_node_types"]["gpu_worker"]["node_config"].pop("InstanceInitiatedShutdownBehavior"),
        "alone",
        "gpu_worker runs on",
    ),
    "typo on top": (AWS, lambda c: c.update(max_worker=3), "schema", "max_worker"),
    "typo in provider": (AWS, lambda c: c["provider"].update(regoin="x"), "provider", "did you mean 'region'?"),
    "no region": (AWS, lambda c: c["provider"].pop("region"), "provider", "`region` is missing"),
    "typo in node_config": (
        AWS,
        lambda c: c["available_node_types"]["head"]["node_config"].update(InstanceTyp="m5.large"),
        "node_config",
        '"InstanceTyp"',
    ),
    "wrong type in node_config": (
        AWS,
        lambda c: c["available_node_types"]["head"]["node_config"].update(ImageId=7),
        "node_config",
        "ImageId",
    ),
    "unknown head type": (AWS, lambda c: c.update(head_node_type="hed"), "schema", "head_node_type"),
    "Ray unpinned": (
        AWS,
        lambda c: replaced(c, "setup_commands", "ray[default,tune]==2.60.0", "ray[default,tune]"),
        "versions",
        "takes any version",
    ),
    "Ray as a range": (
        LOCAL,
        lambda c: replaced(c, "setup_commands", "==2.60.0", ">=2.60"),
        "versions",
        "takes any version",
    ),
    "no constraints": (
        LOCAL,
        lambda c: replaced(c, "setup_commands", "-c constraints.txt ", ""),
        "versions",
        "no -c constraints.txt",
    ),
    "Ray not installed": (LOCAL, lambda c: c.update(setup_commands=[]), "versions", "whatever Ray it finds"),
    "Ray's own start": (AWS, lambda c: c.pop("head_start_ray_commands"), "versions", "nightly"),
    "image without a version": (
        AWS,
        lambda c: c.update(docker={"image": "rayproject/ray:latest"}),
        "versions",
        "docker",
    ),
    "public dashboard": (
        AWS,
        lambda c: replaced(c, "head_start_ray_commands", "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0"),
        "bindings",
        "the dashboard listens on 0.0.0.0",
    ),
    "public MLflow": (
        LOCAL,
        lambda c: replaced(c, "head_start_ray_commands", "--host 127.0.0.1", "--host 0.0.0.0"),
        "bindings",
        "the MLflow server listens on 0.0.0.0",
    ),
    "no token mode": (
        AWS,
        lambda c: replaced(c, "worker_start_ray_commands", "export RAY_AUTH_MODE=token;", ""),
        "token",
        "the worker starts Ray without",
    ),
    "no token": (LOCAL, lambda c: c["file_mounts"].pop("~/.ray/auth_token"), "token", "no file mount"),
    "a node type on a machine of one's own": (
        LOCAL,
        lambda c: c.update(available_node_types={"x": {"node_config": {}, "resources": {}}}),
        "schema",
        "",
    ),
    "no head": (LOCAL, lambda c: c["provider"].pop("head_ip"), "schema", ""),
    "the head as a worker": (
        LOCAL,
        lambda c: c["provider"].update(head_ip="10.0.0.1", worker_ips=["10.0.0.1"]),
        "provider",
        "10.0.0.1",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistake_is_caught(name: str, tmp_path: Path) -> None:
    path, edit, check, words = MISTAKES[name]
    found = with_mistake(path, tmp_path, edit)
    assert check in found, f"{name}: only {sorted(found)} failed"
    assert words in found[check].detail
    assert found[check].remedy


def test_pin_other_than_the_constraints_is_caught(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("ray==2.59.1\n")
    found = with_mistake(AWS, tmp_path, lambda c: None)
    assert "2.60.0 here, 2.59.1 in constraints.txt" in found["versions"].detail


def test_ipv6_counts_as_the_world() -> None:
    rule = {"FromPort": 22, "ToPort": 22, "IpProtocol": "tcp", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}
    assert open_rules([rule]) == ["port 22 to ::/0"]
    assert open_rules([{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]) == ["every port to 0.0.0.0/0"]
    assert open_rules([{"FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "203.0.113.7/32"}]}]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "start from ray_cluster.yaml"),
        ("a: [1\nb: 2", "is not valid YAML: line 2, column 2: expected"),
        ("just words", "must be a mapping"),
        ("cluster_name: x\nprovider: {type: gcloud}", "aws, local"),
        ("cluster_name: x", "aws, local"),
        ("provider: {type: [aws]}", "aws, local"),
        ("provider: {type: local, worker_ips: 3}", "provider.worker_ips should be a valid list; got 3"),
        ("provider: {type: local}\nhead_start_ray_commands: [3]", "head_start_ray_commands.0 should be a valid string"),
        ("provider: {type: local}\nsetup_commands: {a: b}", "setup_commands should be a valid list"),
        ("provider: {type: aws}\ndocker: [a]", "docker should be a valid dictionary"),
        (
            "provider: {type: aws}\navailable_node_types: {a: {node_config: 3}}",
            "node_config should be a valid dictionary",
        ),
        ("provider: {type: aws, security_group: {IpPermissions: [3]}}", "provider.security_group.IpPermissions.0"),
        ("a: &a [x]\nb: !!int x", "tags such as"),
        ("[" * 5000, "at most 50 mappings and lists"),
    ],
)
def test_bad_input_is_one_sentence(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", str(path)])
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and words in err and err.count("\n") == 1


def test_lines_to_choose_are_right_once_uncommented(tmp_path: Path) -> None:
    text = (
        AWS.read_text()
        .replace("# InstanceMarketOptions", "InstanceMarketOptions")
        .replace("#     MarketType", "    MarketType")
        .replace("# UserData", "UserData")
        .replace("# InstanceInitiatedShutdownBehavior", "InstanceInitiatedShutdownBehavior")
    )
    (tmp_path / "cluster.yaml").write_text(text)
    config = read_cluster_file(tmp_path / "cluster.yaml")
    spot = config["available_node_types"]["gpu_worker"]["node_config"]["InstanceMarketOptions"]
    assert spot == {"MarketType": "spot"}
    head = config["available_node_types"]["head"]["node_config"]
    assert head["UserData"] == config["metadata"]["end_when_idle"]
    assert head["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert set(failed(check_cluster_file(tmp_path / "cluster.yaml"))) == {"values"}
