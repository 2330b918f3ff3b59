"""Is THIS machine ready to `ray up` a cluster file: token, tools, the same Ray, tunnel ports, AWS credentials?"""

import importlib.metadata
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.cluster.checks import Check, verdict
from harness.cluster.cluster_file import PLACEHOLDER, open_rules, read_cluster_file
from harness.cluster.versions import pinned_ray

TUNNEL_PORTS = {8265: "the dashboard", 5000: "MLflow"}


def check_launch(path: Path, home: Path | None = None) -> list[Check]:
    """What `ray up`, `ray job submit` and the tunnels need here. Asks AWS only when there are credentials."""
    config = read_cluster_file(path)
    token = (home or Path.home()) / ".ray" / "auth_token"
    checks = [_token_file(token), _tools(), _same_ray(path.parent / "constraints.txt"), check_ports(TUNNEL_PORTS)]
    return [*checks, *check_account(config)] if config["provider"]["type"] == "aws" else checks


def _token_file(token: Path) -> Check:
    make = f"ray get-auth-token --generate > /dev/null && chmod 600 {token}"
    if not token.is_file() or not token.read_text(encoding="utf-8").strip():
        return Check("token file", False, f"there is no {token}, which the cluster file mounts", make)
    if token.stat().st_mode & 0o077:
        return Check("token file", False, f"others on this machine can read {token}", f"chmod 600 {token}")
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return Check(
            "token file", False, "RAY_AUTH_MODE is not set here: submissions are refused", "export RAY_AUTH_MODE=token"
        )
    return Check("token file", True, "there, private, and used")


def _tools() -> Check:
    missing = [tool for tool in ("ssh", "rsync") if shutil.which(tool) is None]
    problems = [f"not installed here: {', '.join(missing)}"] if missing else []
    return verdict("tools", problems, "ssh and rsync are there", "install them with this machine's package manager")


def _same_ray(constraints: Path) -> Check:
    here, wanted = importlib.metadata.version("ray"), pinned_ray(constraints)
    problems = [f"Ray {here} here, {wanted} on the cluster"] if wanted not in (None, here) else []
    return verdict("ray here", problems, f"Ray {here}", f"pip install 'ray[default,tune]=={wanted}'")


def check_ports(ports: Mapping[int, str]) -> Check:
    """An ssh tunnel needs its port free on this machine."""
    busy = []
    for port, page in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just released is free
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                busy.append(f"port {port} for {page} is taken on this machine")
    remedy = "stop what listens there, or open the tunnel on another port with --port"
    return verdict("tunnel ports", busy, "free", remedy)


def check_account(config: Mapping[str, Any]) -> list[Check]:
    """Credentials, and the rules of the security groups as they are at AWS now."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return [Check("aws", False, "boto3 is missing here", "pip install boto3")]
    region = config["provider"].get("region")
    remedy = "run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    try:
        session = boto3.session.Session(region_name=region)
        if session.get_credentials() is None:
            return [Check("aws", False, "no AWS credentials on this machine", remedy)]
        wanted = _groups(config)
        patience = Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 1})
        ec2 = session.client("ec2", config=patience)
        answer = ec2.describe_security_groups(Filters=[{"Name": "group-id", "Values": wanted}]) if wanted else {}
    except (BotoCoreError, ClientError) as error:
        return [Check("aws", False, f"AWS does not answer: {error}".splitlines()[0], remedy)]
    groups = {group["GroupId"]: group["IpPermissions"] for group in answer.get("SecurityGroups", [])}
    problems = [f"{group} does not exist in {region}" for group in wanted if group not in groups]
    for group, permissions in groups.items():
        problems += [f"{group} opens {rule}" for rule in open_rules(permissions)]
        if not any(pair.get("GroupId") in groups for rule in permissions for pair in rule.get("UserIdGroupPairs", [])):
            problems.append(f"{group} does not let its own members talk to each other")
    fix = "deploy/aws/stack.yaml makes such a group"
    fine = f"{', '.join(wanted) or 'none edited yet'}: no port open to the world"
    return [Check("aws", True, f"credentials found for {region}"), verdict("group rules", problems, fine, fix)]


def _groups(config: Mapping[str, Any]) -> list[str]:
    types = config.get("available_node_types") or {}
    settings = [node.get("node_config") or {} for node in types.values()]
    found = {group for each in settings for group in each.get("SecurityGroupIds") or []}
    return sorted(group for group in found if PLACEHOLDER not in group)
