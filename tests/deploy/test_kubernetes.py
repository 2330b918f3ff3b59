"""deploy/kubernetes: manifests have only fields that exist, and so does what they name. No Kubernetes runs here."""

import copy
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from harness.cluster.versions import pinned_ray
from harness.options import RunOptions
from tests.deploy.kubernetes_fields import MANIFEST, ConfigMap, Manifest, PodTemplate, RayCluster, RayJob, Secret

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
JOB, CLUSTER, SETTINGS = (FOLDER / name for name in ("rayjob.yaml", "raycluster.yaml", "settings.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [copy.deepcopy(each) for each in yaml.safe_load_all(path.read_text())]


def read(path: Path) -> list[Manifest]:
    return [MANIFEST.validate_python(each) for each in documents(path)]


def templates(manifest: RayJob | RayCluster) -> Iterator[PodTemplate]:
    spec = manifest.spec.rayClusterSpec if isinstance(manifest, RayJob) else manifest.spec
    assert spec is not None
    yield spec.headGroupSpec.template
    yield from (group.template for group in spec.workerGroupSpecs)


def test_the_shipped_manifests_have_only_fields_that_there_are() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == ["raycluster.yaml", "rayjob.yaml", "settings.yaml"]
    kinds = [manifest.kind for path in (JOB, CLUSTER, SETTINGS) for manifest in read(path)]
    assert kinds == ["RayJob", "RayCluster", "ConfigMap", "Secret"]


Edit = Callable[[dict[str, Any]], object]


def gpu(job: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][
        0
    ]
    return container


TYPOS: dict[str, Edit] = {
    "backoffLimit": lambda job: job["spec"].update(backofLimit=job["spec"].pop("backoffLimit")),
    "entrypoint": lambda job: job["spec"].update(entryPoint=job["spec"].pop("entrypoint")),
    "mode of the token": lambda job: job["spec"]["rayClusterSpec"].update(authOptions={"mode": "tokens"}),
    "authOptions": lambda job: job["spec"]["rayClusterSpec"].update(authOption={"mode": "token"}),
    "a count as text": lambda job: job["spec"].update(backoffLimit="3"),
    "a number as a parameter of ray start": lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"].update(
        rayStartParams={"num-cpus": 0}
    ),
    "no maxReplicas": lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("maxReplicas"),
    "maxReplica": lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].update(maxReplica=4),
    "a quantity": lambda job: gpu(job)["resources"]["limits"].update(memory="12GiB"),
    "resource": lambda job: gpu(job).update(resource={}),
    "envFrom": lambda job: gpu(job).update(envfrom=[]),
    "configMapRef": lambda job: gpu(job).update(envFrom=[{"configMap": {"name": "depth-search"}}]),
    "runAsNonRoot": lambda job: gpu(job)["securityContext"].update(runAsNonroot=True),
    "capital letters in a name": lambda job: gpu(job).update(name="Ray-Worker"),
    "apiVersion": lambda job: job.update(apiVersion="ray.io/v1alpha1"),
    "kind": lambda job: job.update(kind="Rayjob"),
    "status": lambda job: job.update(status={}),
}


@pytest.mark.parametrize("name", TYPOS)
def test_a_planted_typo_is_refused(name: str) -> None:
    [job] = documents(JOB)
    TYPOS[name](job)
    with pytest.raises(ValidationError):
        MANIFEST.validate_python(job)


def test_both_start_the_same_cluster() -> None:
    [job], [cluster] = read(JOB), read(CLUSTER)
    assert isinstance(job, RayJob) and isinstance(cluster, RayCluster)
    assert job.spec.rayClusterSpec == cluster.spec
    assert cluster.spec.rayVersion == pinned_ray(ROOT / "constraints.txt")


def test_what_pods_are_told_exists_and_is_known() -> None:
    settings = read(SETTINGS)
    known = {"HARNESS_DATA_DIR", "HARNESS_STORAGE", "MLFLOW_TRACKING_URI"}
    names = {type(each): each.metadata.name for each in settings}
    [told] = [each.data for each in settings if isinstance(each, ConfigMap)]
    assert told.keys() == known
    for path in (JOB, CLUSTER):
        [manifest] = read(path)
        assert isinstance(manifest, RayJob | RayCluster)
        assert manifest.metadata.name not in names.values(), "KubeRay gives its own Secret the cluster's name"
        for template in templates(manifest):
            [container] = template.spec.containers
            maps = [each.configMapRef.name for each in container.envFrom if each.configMapRef]
            secrets = [each.secretRef.name for each in container.envFrom if each.secretRef]
            assert (maps, secrets) == ([names[ConfigMap]], [names[Secret]])


def test_pods_are_closed_and_say_what_a_trial_gets() -> None:
    [job] = read(JOB)
    assert isinstance(job, RayJob) and job.spec.rayClusterSpec is not None
    head, *workers = templates(job)
    for template in (head, *workers):
        [container] = template.spec.containers
        closed, asked = container.securityContext, container.resources
        assert closed and closed.runAsNonRoot and closed.runAsUser == 1000 and closed.allowPrivilegeEscalation is False
        assert closed.capabilities and closed.capabilities.drop == ["ALL"]
        assert asked and {"cpu", "memory"} <= asked.requests.keys()
        assert asked.limits == asked.requests, "Ray counts the limits; a pod must have what it promises"
        gpus = "nvidia.com/gpu" in asked.limits
        assert container.image.endswith("-cuda" if gpus else "-cpu")
    assert all(template.spec.automountServiceAccountToken is False for template in workers)
    assert job.spec.rayClusterSpec.headGroupSpec.rayStartParams["num-cpus"] == "0"
    assert job.spec.rayClusterSpec.authOptions is not None and job.spec.rayClusterSpec.authOptions.mode == "token"


def test_the_run_continues_on_a_new_cluster() -> None:
    """Its command is the same each time, its results are in the storage of every pod, and it is tried again."""
    [job] = read(JOB)
    assert isinstance(job, RayJob) and job.spec.backoffLimit >= 1 and job.spec.shutdownAfterJobFinishes
    words = shlex.split(job.spec.entrypoint)
    assert words[:2] == ["harness", "run"] and not {"--fresh", "--out", "--storage", "--address"} & set(words)
    given = RunOptions.of(address="10.0.0.1:6379", storage="s3://bucket/depth-search").placed()
    assert given.storage == "s3://bucket/depth-search"
