"""Can a running Ray do what a run will ask of it? Every node is asked; nothing is left behind."""

import base64
import contextlib
import http.client
import logging
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from harness.backends import check_ray_version
from harness.cluster.checks import Check, verdict
from harness.cluster.nodes import NodeReport, ask_nodes, autoscaler_config, share_tokens, start_an_actor
from harness.cluster.slots import check_resources, missing_machines, worker_types
from harness.errors import UserError
from harness.text.shown import redacted, without_secrets


def doctor(
    address: str, storage: str | None, tracking_uri: str | None, gpus_per_trial: float, cpus_per_trial: float
) -> list[Check]:
    """The preflight of a run, on the Ray at `address` or on the one this process is connected to."""
    import ray

    with connected(address):
        alive = [node for node in ray.nodes() if node["Alive"]]
        reports = ask_nodes([node["NodeID"] for node in alive])
        autoscaler = autoscaler_config()
        answered = [report.node_id for report in reports]
        where = ray.get_runtime_context().gcs_address
        actor_failure = start_an_actor() if reports else "no node ran a task"
        tokens = share_tokens(answered, storage) if storage else {}
    silent = [node["NodeManagerAddress"] for node in alive if node["NodeID"] not in answered]
    machines = {report.host for report in reports}
    return [
        check_nodes(len(alive), silent, [node["NodeManagerAddress"] for node in alive], autoscaler),
        check_versions(reports),
        check_actors(actor_failure, where, any(report.asks_for_token for report in reports)),
        check_storage(storage, tokens, {report.node_id: report.host for report in reports}),
        check_resources([node["Resources"] for node in alive], autoscaler, gpus_per_trial, cpus_per_trial),
        check_tracking(tracking_uri, len(machines)),
    ]


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Inside the block this process is connected to the Ray there, or to the one it was connected to before."""
    check_ray_version()
    import ray

    if ray.is_initialized():
        yield
        return
    silent = UserError(
        f"Ray must be running at the address given, none answers at {address}; start one with `ray start --head` or "
        "`ray up ray_cluster.yaml`"
    )
    if not answers(address):
        raise silent
    try:
        with _silent_stderr():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="harness-doctor")
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.AuthenticationError) as error:
        if "Could not find any running Ray" in str(error):
            raise silent from None
        # Another Ray or Python; no token here; or a wrong one, of which Ray says only that it could not connect.
        reason = " ".join(str(error).split())
        raise UserError(
            f"Ray at {address} refuses this process: {reason}; use the Ray, the Python and the ~/.ray/auth_token of "
            "the cluster, and export RAY_AUTH_MODE=token"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Ray's native code writes a line a second about a wrong token; our sentence says it once."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def answers(address: str | None) -> bool:
    """Whether something listens at host:port, where Ray would retry for minutes. Other addresses fail at once."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return True
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def check_nodes(
    alive: int, silent: Sequence[str], addresses: Sequence[str], autoscaler: Mapping[str, Any] | None
) -> Check:
    """All machines that a `local` cluster file names are up and answer. Cloud workers start when they are needed."""
    problems = [f"{node} did not run a task" for node in silent]
    if missing_machines(alive, autoscaler):
        wanted = (autoscaler or {})["provider"]["worker_ips"]
        absent = [str(worker) for worker in wanted if worker not in addresses]
        problems.append(f"{alive - 1} of {len(wanted)} workers are up, missing: {', '.join(absent)}")
    remedy = (
        "`ray monitor <file>` shows why; check that the head reaches it by ssh, that `ray up` was run with "
        "RAY_UP_enable_autoscaler_v2=0, and that it has the same Ray and the token"
    )
    if problems:
        return Check("nodes", False, "; ".join(problems), remedy, fatal=False)
    return Check(
        "nodes", True, f"{alive} alive" + (", more start when trials wait" if worker_types(autoscaler) else "")
    )


def check_versions(reports: Sequence[NodeReport]) -> Check:
    """Python, Ray, torch and harness are the same on all nodes: numbers from a mix cannot be compared."""
    problems = []
    for package in ("python", "ray", "torch", "harness"):
        found: dict[str, list[str]] = {}
        for report in reports:
            found.setdefault(report.versions.get(package) or "missing", []).append(report.host)
        if len(found) > 1 or "missing" in found:
            shown = ", ".join(
                f"{version} on {' '.join(sorted(set(hosts)))}" for version, hosts in sorted(found.items())
            )
            problems.append(f"{package}: {shown}")
    fine = (
        ", ".join(f"{package} {version}" for package, version in reports[0].versions.items()) if reports else "no node"
    )
    return verdict("versions", problems, fine, "install the same on every node: pip install -c constraints.txt .")


def check_actors(failure: str | None, address: str, asks_for_token: bool) -> Check:
    """A trial is an actor. `failure`: why one did not start; None: one did."""
    if failure is None:
        return Check("actors", True, "one started and answered")
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token" and not asks_for_token:
        token = _token_in_use()
        return Check(
            "actors",
            False,
            f"none starts ({failure}): this process sends the token in {token}, and the Ray at {address} asks for none",
            f"remove {token} if no cluster of yours asks for it (the harness left one there up to 0.1.0), or export "
            "RAY_AUTH_MODE=disabled",
        )
    return Check("actors", False, f"none starts: {failure}", "`ray logs` on the head shows why; restart Ray there")


def _token_in_use() -> str:
    """Where Ray takes it from."""
    if "RAY_AUTH_TOKEN" in os.environ:
        return "RAY_AUTH_TOKEN"
    return os.environ.get("RAY_AUTH_TOKEN_PATH") or str(Path.home() / ".ray" / "auth_token")


def check_storage(storage: str | None, tokens: Mapping[str, str | None], hosts: Mapping[str, str]) -> Check:
    """Every node wrote a token and read those of all others; `tokens` holds what went wrong on a node, or None."""
    if storage is None:
        if len(set(hosts.values())) < 2:
            return Check("storage", True, "this machine's disk")
        remedy = "give --storage s3://bucket/folder, or a folder that all nodes see (NFS)"
        return Check("storage", False, f"none given, and there are {len(set(hosts.values()))} machines", remedy)
    problems = [f"{hosts[node]}: {problem}" for node, problem in tokens.items() if problem]
    remedy = "use a bucket that all nodes may write (S3), or a folder that is mounted on all of them (NFS)"
    return verdict("storage", problems, f"{redacted(storage)}: written and read by {len(tokens)} nodes", remedy)


def check_tracking(uri: str | None, machines: int) -> Check:
    """The tracking server answers; a sqlite file works on one machine only."""
    if uri is None:
        return Check("tracking", True, "none given")
    shown, scheme = redacted(uri), uri.partition(":")[0] if ":" in uri else ""
    server = (
        "start `mlflow server --host 127.0.0.1 --port 5000` on the head and give --tracking-uri http://127.0.0.1:5000"
    )
    if scheme in ("http", "https"):
        try:
            with urllib.request.urlopen(_health(uri), timeout=10):
                return Check("tracking", True, f"{shown} answers")
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = without_secrets(str(getattr(error, "reason", error)), uri)
            return Check("tracking", False, f"{shown} does not answer: {reason}", server, fatal=False)
    if scheme == "sqlite":
        folder = Path(uri.removeprefix("sqlite:///")).parent
        if machines > 1:
            return Check("tracking", False, f"{shown} is a file, and there are {machines} machines", server)
        problems = [] if folder.is_dir() else [f"there is no folder {folder} for {shown}"]
        return verdict("tracking", problems, shown, f"mkdir -p {folder}")
    if scheme in ("", "file"):
        return Check("tracking", False, f"{shown} is a folder, which MLflow no longer writes", server)
    return Check("tracking", True, f"{shown}: not checked")


def _health(uri: str) -> urllib.request.Request:
    """The page on which a server says that it is well; a login in the address goes where servers look for it."""
    parts = urlsplit(uri)
    login, _, host = parts.netloc.rpartition("@")
    headers = {"Authorization": f"Basic {base64.b64encode(unquote(login).encode()).decode()}"} if login else {}
    return urllib.request.Request(f"{parts.scheme}://{host}{parts.path.rstrip('/')}/health", headers=headers)
