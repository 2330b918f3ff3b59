"""The fields of Kubernetes objects that deploy/kubernetes uses, and those of KubeRay's, as strict models.

Written by hand from the documented fields: the API references of KubeRay 1.5 (ray.io/v1) and Kubernetes 1.33 (core/v1).
Of the core objects only what a manifest of this repository may use is here. What is not here is refused, as the API
server refuses it with `kubectl apply --validate=strict`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?(m|[kMGTP]i?|Ki)?$")]
Label = Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Count = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: Name | None = None
    generateName: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,50})$")] | None = None
    namespace: Name | None = None
    labels: dict[Label, str] = {}
    annotations: dict[Label, str] = {}


# --- core/v1 ----------------------------------------------------------------------------------------------------------


class NameReference(Strict):
    name: Name
    optional: bool = False


class EnvSource(Strict):
    configMapRef: NameReference | None = None
    secretRef: NameReference | None = None
    prefix: str = ""


class KeyReference(NameReference):
    key: str


class ValueFrom(Strict):
    configMapKeyRef: KeyReference | None = None
    secretKeyRef: KeyReference | None = None


class Env(Strict):
    name: Variable
    value: str | None = None
    valueFrom: ValueFrom | None = None


class Capabilities(Strict):
    add: list[str] = []
    drop: list[str] = []


class SecurityContext(Strict):
    runAsNonRoot: bool | None = None
    runAsUser: Count | None = None
    runAsGroup: Count | None = None
    allowPrivilegeEscalation: bool | None = None
    privileged: bool | None = None
    readOnlyRootFilesystem: bool | None = None
    capabilities: Capabilities | None = None


class Resources(Strict):
    requests: dict[Label, Quantity] = {}
    limits: dict[Label, Quantity] = {}


class Port(Strict):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,15}$")] | None = None
    containerPort: Annotated[int, Field(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class VolumeMount(Strict):
    name: Name
    mountPath: str
    readOnly: bool = False
    subPath: str | None = None


class Container(Strict):
    name: Name
    image: str
    imagePullPolicy: Literal["Always", "IfNotPresent", "Never"] | None = None
    command: list[str] = []
    args: list[str] = []
    env: list[Env] = []
    envFrom: list[EnvSource] = []
    ports: list[Port] = []
    resources: Resources | None = None
    securityContext: SecurityContext | None = None
    volumeMounts: list[VolumeMount] = []


class Toleration(Strict):
    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None


class ClaimReference(Strict):
    claimName: Name
    readOnly: bool = False


class EmptyFolder(Strict):
    medium: Literal["", "Memory"] = ""
    sizeLimit: Quantity | None = None


class Volume(Strict):
    name: Name
    persistentVolumeClaim: ClaimReference | None = None
    emptyDir: EmptyFolder | None = None


class PodSpec(Strict):
    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[Volume] = []
    nodeSelector: dict[Label, str] = {}
    tolerations: list[Toleration] = []
    serviceAccountName: Name | None = None
    automountServiceAccountToken: bool | None = None
    terminationGracePeriodSeconds: Count | None = None
    restartPolicy: Literal["Always", "OnFailure", "Never"] | None = None
    imagePullSecrets: list[NameReference] = []


class PodTemplate(Strict):
    metadata: Metadata | None = None
    spec: PodSpec


class ConfigMap(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["ConfigMap"]
    metadata: Metadata
    data: dict[Variable, str]


class Secret(Strict):
    apiVersion: Literal["v1"]
    kind: Literal["Secret"]
    metadata: Metadata
    type: str = "Opaque"
    stringData: dict[Variable, str]


# --- ray.io/v1 --------------------------------------------------------------------------------------------------------


class AuthOptions(Strict):
    mode: Literal["disabled", "token"]


class AutoscalerOptions(Strict):
    resources: Resources | None = None
    image: str | None = None
    imagePullPolicy: Literal["Always", "IfNotPresent", "Never"] | None = None
    securityContext: SecurityContext | None = None
    idleTimeoutSeconds: Count | None = None
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] | None = None
    version: Literal["v1", "v2"] | None = None
    env: list[Env] = []
    envFrom: list[EnvSource] = []
    volumeMounts: list[VolumeMount] = []


class HeadGroup(Strict):
    template: PodTemplate
    rayStartParams: dict[str, str] = {}
    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    enableIngress: bool | None = None
    headService: dict[str, Any] | None = None


class WorkerGroup(Strict):
    groupName: Name
    replicas: Count = 0
    minReplicas: Count
    maxReplicas: Count
    numOfHosts: Annotated[int, Field(ge=1)] = 1
    idleTimeoutSeconds: Count | None = None
    suspend: bool | None = None
    rayStartParams: dict[str, str] = {}
    template: PodTemplate
    scaleStrategy: dict[str, list[str]] | None = None


class RedisValue(Strict):
    value: str | None = None
    valueFrom: ValueFrom | None = None


class FaultTolerance(Strict):
    redisAddress: str
    redisUsername: RedisValue | None = None
    redisPassword: RedisValue | None = None
    externalStorageNamespace: str | None = None


class RayClusterSpec(Strict):
    rayVersion: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    authOptions: AuthOptions | None = None
    enableInTreeAutoscaling: bool | None = None
    autoscalerOptions: AutoscalerOptions | None = None
    gcsFaultToleranceOptions: FaultTolerance | None = None
    headServiceAnnotations: dict[str, str] | None = None
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup] = []
    suspend: bool | None = None
    managedBy: Literal["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"] | None = None


class Submitter(Strict):
    backoffLimit: Count | None = None


class RayJobSpec(Strict):
    entrypoint: str
    rayClusterSpec: RayClusterSpec | None = None
    clusterSelector: dict[str, str] | None = None
    backoffLimit: Count = 0
    activeDeadlineSeconds: Annotated[int, Field(ge=1)] | None = None
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = "K8sJobMode"
    submitterConfig: Submitter | None = None
    submitterPodTemplate: PodTemplate | None = None
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: Count = 0
    runtimeEnvYAML: str | None = None
    jobId: str | None = None
    metadata: dict[str, str] | None = None
    entrypointNumCpus: float | None = None
    entrypointNumGpus: float | None = None
    entrypointResources: str | None = None
    suspend: bool | None = None
    managedBy: Literal["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"] | None = None


class RayCluster(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: RayClusterSpec


class RayJob(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: RayJobSpec


Manifest = ConfigMap | Secret | RayCluster | RayJob
MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Annotated[Manifest, Field(discriminator="kind")])
