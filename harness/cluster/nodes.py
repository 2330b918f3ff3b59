"""Questions that run on every node of a Ray cluster, for the doctor.

The functions are sent by value: a node on which the harness is missing or old must be able to say so.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.text.shown import redacted

ANSWER_SECONDS = 90.0  # a node may have to start a worker first


@dataclass(frozen=True)
class NodeReport:
    node_id: str
    host: str
    versions: Mapping[str, str | None]  # None: not installed there
    asks_for_token: bool = False


def ask_nodes(node_ids: Sequence[str]) -> list[NodeReport]:
    """Name and versions of each node that answers."""

    def look() -> dict[str, Any]:
        import importlib.metadata
        import os
        import platform
        import socket

        versions: dict[str, str | None] = {"python": platform.python_version()}
        for package in ("ray", "torch"):
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                versions[package] = None
        try:
            import harness

            versions["harness"] = harness.__version__
        except ImportError:
            versions["harness"] = None
        # Ray hands the mode in which it was started on to all of its processes.
        asks = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
        return {"host": socket.gethostname(), "versions": versions, "asks_for_token": asks}

    answers = on_each_node(look, dict.fromkeys(node_ids, ()))
    return [NodeReport(node, **answer) for node, answer in answers.items() if not isinstance(answer, Exception)]


def start_an_actor() -> str | None:
    """What went wrong, in one line; None: it answered. Trials are actors, and tasks may run where those do not."""
    import ray

    def answer(actor: Any) -> str:
        return "here"

    answering: Any = type("Answering", (), {"answer": answer})
    actor = ray.remote(num_cpus=0, max_restarts=0)(answering).remote()
    try:
        ray.get(actor.answer.remote(), timeout=ANSWER_SECONDS)
    except ray.exceptions.GetTimeoutError:
        return f"it gave no answer in {ANSWER_SECONDS:.0f} s"
    except ray.exceptions.RayError as error:
        return first_line(error)
    finally:
        ray.kill(actor)
    return None


def share_tokens(node_ids: Sequence[str], storage: str) -> dict[str, str | None]:
    """Each node writes a file to the storage and reads the files of all nodes; per node what went wrong, or None."""
    folder = f".harness-doctor-{secrets.token_hex(8)}"

    def files(uri: str) -> Any:
        """The file system and a folder of our own in it: an address may go on after its path, so not by its text."""
        import pyarrow.fs

        system, path = (pyarrow.fs.LocalFileSystem(), uri) if "://" not in uri else pyarrow.fs.FileSystem.from_uri(uri)
        return system, f"{path.rstrip('/')}/{folder}"

    def write(uri: str, node: str) -> None:
        system, path = files(uri)
        system.create_dir(path, recursive=True)
        with system.open_output_stream(f"{path}/{node}") as stream:
            stream.write(node.encode())

    def read(uri: str, others: Sequence[str]) -> list[str]:
        system, path = files(uri)
        unread = []
        for node in others:
            try:
                with system.open_input_stream(f"{path}/{node}") as stream:
                    if stream.read().decode() != node:
                        unread.append(node)
            except OSError:
                unread.append(node)
        return unread

    def clean(uri: str) -> None:
        import contextlib

        system, path = files(uri)
        with contextlib.suppress(OSError):  # another node was faster
            system.delete_dir(path)

    try:
        written = on_each_node(write, {node: (storage, node) for node in node_ids})
        there = [node for node, answer in written.items() if not isinstance(answer, Exception)]
        seen = on_each_node(read, dict.fromkeys(there, (storage, there)))
        return {node: _sharing_problem(answer, seen.get(node, []), storage) for node, answer in written.items()}
    finally:
        on_each_node(clean, dict.fromkeys(node_ids, (storage,)))


def _sharing_problem(written: Any, unread: Any, storage: str) -> str | None:
    """From what a node answered: nothing or an error of writing, a list or an error of reading."""
    for verb, answer in (("write", written), ("read", unread)):
        if isinstance(answer, Exception):
            return f"cannot {verb}: {first_line(answer)}"
    return f"does not see what {len(unread)} other node(s) wrote to {redacted(storage)}" if unread else None


def autoscaler_config() -> dict[str, Any] | None:
    """The file that the head's autoscaler reads; None when this Ray has no autoscaler."""
    import ray

    def read(gcs_address: str) -> dict[str, Any] | None:
        from pathlib import Path

        import yaml

        for source in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = source.read_bytes().decode(errors="replace").split("\0")
            except OSError:  # the process has ended
                continue
            given = [word.removeprefix("--autoscaling-config=") for word in words if "--autoscaling-config=" in word]
            monitor = any(word.endswith("monitor.py") for word in words)
            if monitor and given and f"--gcs-address={gcs_address}" in words:
                path = Path(given[0]).expanduser()
                return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
        return None

    nodes = [node for node in ray.nodes() if node["Alive"]]
    heads = [node["NodeID"] for node in nodes if "node:__internal_head__" in node["Resources"]]
    address = ray.get_runtime_context().gcs_address
    for answer in on_each_node(read, dict.fromkeys(heads, (address,))).values():
        return None if isinstance(answer, Exception) else answer
    return None


def on_each_node(
    function: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]], seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """Runs a function on each node with its arguments; an answer is a value or the exception. Needs no free CPU."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_retries=0)(function)
    calls = {
        node: remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(*given)
        for node, given in arguments.items()
    }
    if not calls:
        return {}
    done, late = ray.wait(list(calls.values()), num_returns=len(calls), timeout=seconds)
    for call in late:
        ray.cancel(call, force=True)
    answers: dict[str, Any] = {}
    for node, call in calls.items():
        try:
            answers[node] = ray.get(call) if call in done else TimeoutError(f"no answer in {seconds:.0f} s")
        except Exception as error:  # whatever went wrong on that node
            answers[node] = error
    return answers


def first_line(error: Exception) -> str:
    """Ray's exceptions carry the traceback of the node; the message itself comes last."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
