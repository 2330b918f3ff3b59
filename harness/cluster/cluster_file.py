"""Is a cluster YAML for `ray up` correct and closed to the world? Checked offline, before it costs money."""

import contextlib
import io
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.cluster.checks import Check, verdict
from harness.cluster.versions import check_pins
from harness.errors import UserError, brief_repr, nearest
from harness.spaces import explain
from harness.text.files import checked_path, read_text
from harness.text.strict_yaml import parse_yaml

PLACEHOLDER = "EDIT-ME"
EVERYWHERE = ("0.0.0.0/0", "::/0")

# Ray silently accepts any key in `provider`; these are the ones it reads.
_COMMON_PROVIDER_KEYS = {"type", "use_internal_ips", "disable_node_updaters", "disable_launch_config_check"}
_PROVIDER_KEYS = {
    "aws": _COMMON_PROVIDER_KEYS
    | {
        "region",
        "availability_zone",
        "cache_stopped_nodes",
        "security_group",
        "key_pair",
        "aws_credentials",
        "cloudwatch",
        "worker_liveness_check",
        "worker_rpc_drain",
        "foreground_node_launch",
    },
    "local": _COMMON_PROVIDER_KEYS | {"head_ip", "worker_ips", "external_head_ip", "coordinator_address"},
}

Config = Mapping[str, Any]


# --- the shape of a file -------------------------------------------------------------------------------------------
# What the checks below, and those of `versions` and `this_machine`, rely on. Ray's own schema is looser in places.


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Permission(_Shape):
    ip_ranges: list[dict[str, Any]] | None = Field(alias="IpRanges", default=None)
    ipv6_ranges: list[dict[str, Any]] | None = Field(alias="Ipv6Ranges", default=None)


class _SecurityGroup(_Shape):
    permissions: list[_Permission] | None = Field(alias="IpPermissions", default=None)


class _Provider(_Shape):
    region: str | None = None
    head_ip: str | None = None
    worker_ips: list[str] | None = None
    security_group: _SecurityGroup | None = None


class _NetworkInterface(_Shape):
    groups: list[str] | None = Field(alias="Groups", default=None)


class _Disk(_Shape):
    ebs: dict[str, Any] | None = Field(alias="Ebs", default=None)


class _NodeConfig(_Shape):
    disks: list[_Disk] | None = Field(alias="BlockDeviceMappings", default=None)
    profile: dict[str, Any] | None = Field(alias="IamInstanceProfile", default=None)
    interfaces: list[_NetworkInterface] | None = Field(alias="NetworkInterfaces", default=None)
    groups: list[str] | None = Field(alias="SecurityGroupIds", default=None)


class _NodeType(_Shape):
    node_config: _NodeConfig | None = None


class _Docker(_Shape):
    image: str | None = None
    head_image: str | None = None
    worker_image: str | None = None


class _ClusterFile(_Shape):
    provider: _Provider
    docker: _Docker | None = None
    file_mounts: dict[str, str] | None = None
    available_node_types: dict[str, _NodeType] | None = None
    initialization_commands: list[str] | None = None
    setup_commands: list[str] | None = None
    head_setup_commands: list[str] | None = None
    worker_setup_commands: list[str] | None = None
    head_start_ray_commands: list[str] | None = None
    worker_start_ray_commands: list[str] | None = None


def read_cluster_file(path: Path) -> dict[str, Any]:
    """The YAML as a mapping of the right shape, with a provider this harness knows."""
    if not checked_path(path, "a cluster file").exists():
        raise UserError(f"a cluster file must exist: there is no {path}; start from ray_cluster.yaml")
    config = parse_yaml(read_text(path, "a cluster file"), f"cluster file {path}")
    if not isinstance(config, dict):
        raise UserError(
            f"a cluster file must be a mapping with `cluster_name` and `provider`, {path} is not; start from "
            "ray_cluster.yaml"
        )
    provider = config.get("provider")
    kind = provider.get("type") if isinstance(provider, dict) else None
    if not isinstance(kind, str) or kind not in _PROVIDER_KEYS:
        raise UserError(f"`provider: type:` must be one of {', '.join(_PROVIDER_KEYS)}, {path} has {brief_repr(kind)}")
    try:
        _ClusterFile.model_validate(config)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, _ClusterFile)}") from None
    return config


# --- the checks ----------------------------------------------------------------------------------------------------


def check_cluster_file(path: Path) -> list[Check]:
    """All offline checks of a cluster file, in the order in which a person would fix it."""
    config = read_cluster_file(path)
    checks = [_edited(read_text(path, "a cluster file")), _schema(config), _provider_keys(config)]
    if config["provider"]["type"] == "aws":
        checks += [_node_config(config), _closed(config), _rights(config), _ends(config)]
    return [
        *checks,
        check_pins(config, commands(config), path.parent / "constraints.txt"),
        _bindings(config),
        _token(config),
    ]


def _edited(text: str) -> Check:
    lines = enumerate(text.splitlines(), start=1)
    left = [f"line {number}" for number, line in lines if PLACEHOLDER in line.split(" #")[0]]
    remedy = f"put your own values where the file says {PLACEHOLDER}"
    return verdict("values", [f"not edited: {', '.join(left)}"] if left else [], "all filled in", remedy)


def _schema(config: Config) -> Check:
    problem = schema_problem(config)
    return verdict("schema", [problem] if problem else [], "as Ray wants it", "correct the key or value named here")


def schema_problem(config: Config) -> str | None:
    """What Ray's own validation objects to, in one line; Ray fills in its defaults first."""
    import click
    import jsonschema  # type: ignore[import-untyped]

    from harness.backends import ray_door

    silence = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    try:
        with silence[0], silence[1], _quiet_ray():
            ray_door.validate_cluster_file(dict(config))
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path)
        return f"{where}: {error.message}" if where else str(error.message)
    except (click.ClickException, SystemExit) as error:  # Ray's `abort`
        return str(error) or "Ray refuses the file"
    except Exception as error:  # Ray raises all sorts: KeyError, AttributeError, AssertionError …
        return f"{type(error).__name__}: {error}"
    return None


@contextlib.contextmanager
def _quiet_ray() -> Iterator[None]:
    """Ray logs a warning per mounted file although no container is used."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _provider_keys(config: Config) -> Check:
    provider = config["provider"]
    known = _PROVIDER_KEYS[provider["type"]]
    problems = [f"unknown key {key!r}, {nearest(key, known)}" for key in provider if key not in known]
    if provider["type"] == "aws" and not provider.get("region"):
        problems.append("`region` is missing")
    machines = [provider.get("head_ip"), *(provider.get("worker_ips") or [])]
    twice = sorted({str(machine) for machine in machines if machine != PLACEHOLDER and machines.count(machine) > 1})
    if provider["type"] == "local" and twice:
        problems.append(f"named twice: {', '.join(twice)} (the head is not a worker)")
    remedy = "correct the key; Ray silently ignores keys it does not know"
    return verdict("provider", problems, "all keys known", remedy)


def _node_config(config: Config) -> Check:
    """`node_config` goes to EC2's RunInstances; botocore knows its shape."""
    remedy = "correct the key: EC2 would refuse to start the machine"
    try:
        import botocore.session
        from botocore.validate import ParamValidator
    except ImportError:
        return Check("node_config", False, "not checked, boto3 is missing", "pip install boto3")
    shape = botocore.session.Session().get_service_model("ec2").operation_model("RunInstances").input_shape
    problems = []
    for name, node in _node_types(config).items():
        given = dict(node.get("node_config") or {})
        given.pop("SubnetIds", None)  # Ray's own: it becomes SubnetId
        report = ParamValidator().validate({"MinCount": 1, "MaxCount": 1, **given}, shape)
        lines = report.generate_report().splitlines()
        problems += [f"{name}: {line.split(', must be one of')[0]}" for line in lines]
    return verdict("node_config", problems, "as EC2 wants it", remedy)


def _closed(config: Config) -> Check:
    problems = []
    for name, node in _node_types(config).items():
        settings = node.get("node_config") or {}
        inner = [group for card in settings.get("NetworkInterfaces") or [] for group in card.get("Groups") or []]
        if not settings.get("SecurityGroupIds") and not inner:
            problems.append(f"{name} has no SecurityGroupIds, so Ray makes a group with port 22 open to the world")
    group = config["provider"].get("security_group")
    for rule in open_rules((group.get("IpPermissions") or []) if isinstance(group, dict) else []):
        problems.append(f"provider.security_group opens {rule}")
    remedy = "give every node type the SecurityGroupIds of a group that lets in ssh from your address only"
    return verdict("security group", problems, "your own, given for every node type", remedy)


def _rights(config: Config) -> Check:
    """Whoever controls a trial has the rights of its machine: a worker must not be able to start machines."""
    problems, head = [], config.get("head_node_type")
    profiles = {
        name: (node.get("node_config") or {}).get("IamInstanceProfile") for name, node in _node_types(config).items()
    }
    for name, profile in profiles.items():
        if not profile:
            made = "Ray gives it a role that may do everything with EC2" if name == head else "it cannot reach a bucket"
            problems.append(f"{name} has no IamInstanceProfile, so {made}")
        elif name != head and profile == profiles.get(str(head)):
            problems.append(f"{name} has the head's IamInstanceProfile, which may start machines")
    for name, node in _node_types(config).items():
        disks = (node.get("node_config") or {}).get("BlockDeviceMappings") or []
        if not disks or not all((disk.get("Ebs") or {}).get("Encrypted") is True for disk in disks):
            problems.append(f"a disk of {name} is not encrypted")
    fine = "workers may not start machines, disks are encrypted"
    return verdict("rights", problems, fine, "deploy/aws/stack.yaml makes two profiles; give each disk Encrypted: true")


def _ends(config: Config) -> Check:
    """The autoscaler ends workers, and it is on the head: without that they would be billed for ever."""
    problems = []
    for name, node in _node_types(config).items():
        settings = node.get("node_config") or {}
        ends = settings.get("InstanceInitiatedShutdownBehavior") == "terminate"
        if name != config.get("head_node_type") and not (ends and "poweroff" in str(settings.get("UserData"))):
            problems.append(f"{name} runs on when the head is gone")
    remedy = "take over UserData and InstanceInitiatedShutdownBehavior: terminate from ray_cluster.yaml"
    return verdict("alone", problems, "workers end themselves when the head is gone", remedy)


def open_rules(permissions: list[dict[str, Any]]) -> list[str]:
    """The inbound rules that let the whole internet in, as `port 22 to 0.0.0.0/0`."""
    found = []
    for rule in permissions:
        ranges = [entry.get("CidrIp") for entry in rule.get("IpRanges") or []]
        ranges += [entry.get("CidrIpv6") for entry in rule.get("Ipv6Ranges") or []]
        first, last = rule.get("FromPort", -1), rule.get("ToPort", -1)
        ports = "every port" if first in (-1, None) else f"port {first}" if first == last else f"ports {first}-{last}"
        found += [f"{ports} to {cidr}" for cidr in ranges if cidr in EVERYWHERE]
    return found


def _bindings(config: Config) -> Check:
    """The dashboard and MLflow have no login, so they listen on 127.0.0.1 and are reached through ssh."""
    problems = []
    heads = [command for command in config.get("head_start_ray_commands") or [] if "ray start" in command]
    for command in heads:
        host = re.search(r"--dashboard-host[= ]+(\S+)", command)
        if host and host.group(1).strip("'\"") not in ("127.0.0.1", "localhost"):
            problems.append(f"the dashboard listens on {host.group(1)}")
    if not heads and config["provider"]["type"] == "aws":
        problems.append("no `ray start` for the head, and Ray's own binds the dashboard to 0.0.0.0")
    for command in commands(config):
        host = re.search(r"mlflow (?:server|ui)\b.*?--host[= ]+(\S+)", command, re.DOTALL)
        if host and host.group(1) not in ("127.0.0.1", "localhost"):
            problems.append(f"the MLflow server listens on {host.group(1)}")
    remedy = "bind to 127.0.0.1 (--dashboard-host=127.0.0.1, --host 127.0.0.1) and open an ssh tunnel"
    return verdict("bindings", problems, "dashboard and MLflow on 127.0.0.1 only", remedy)


def _token(config: Config) -> Check:
    """Without a token, anyone who reaches the port can run code on the cluster."""
    problems = []
    for side in ("head", "worker"):
        for command in config.get(f"{side}_start_ray_commands") or []:
            if "ray start" in command and not re.search(r"RAY_AUTH_MODE=[\"']?token\b", command.split("ray start")[0]):
                problems.append(f"the {side} starts Ray without RAY_AUTH_MODE=token")
        if not config.get(f"{side}_start_ray_commands"):
            problems.append(f"no {side}_start_ray_commands, so the {side} starts without token authentication")
    mounts = config.get("file_mounts")
    if not any(str(remote).endswith(".ray/auth_token") for remote in (mounts if isinstance(mounts, dict) else {})):
        problems.append("no file mount brings the token to ~/.ray/auth_token")
    remedy = "`export RAY_AUTH_MODE=token;` before each `ray start`, and mount ~/.ray/auth_token"
    return verdict("token", problems, "asked for on every node", remedy)


def _node_types(config: Config) -> dict[str, Mapping[str, Any]]:
    types = config.get("available_node_types")
    return {name: node for name, node in types.items() if isinstance(node, dict)} if isinstance(types, dict) else {}


def commands(config: Config) -> Iterator[str]:
    """Every shell command of the file, including those of single node types."""
    for source in (config, *_node_types(config).values()):
        for key, value in source.items():
            if key.endswith("_commands") and isinstance(value, list):
                yield from (command for command in value if isinstance(command, str))
