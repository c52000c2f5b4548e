"""cluster.yaml by Ray's own schema, the Kubernetes files by KubeRay's fields, and no secret in any of them."""

from __future__ import annotations

import fnmatch
import ipaddress
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.autoscaler
import yaml
from support.grafana import dashboard, metrics_on_the_dashboard

from ghost_ray.config import build, places_of
from ghost_ray.config.refit_settings import RefitConfig

ROOT = Path(__file__).parents[2]


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


def test_cluster_yaml_is_valid_by_rays_own_schema() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    cluster = load("cluster.yaml")
    jsonschema.validate(cluster, schema)
    validate_config(prepare_config(cluster))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "idle_timeout": 5}, schema)


def test_the_launched_cluster_is_as_the_documentation_says() -> None:
    cluster = load("cluster.yaml")
    types = cluster["available_node_types"]
    head = types[cluster["head_node_type"]]
    assert "GPU" not in head["resources"]
    gpu = [kind for kind in types.values() if kind["resources"].get("GPU")]
    assert gpu
    assert all(kind["min_workers"] == 0 < kind["max_workers"] for kind in gpu)
    assert all(kind["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot" for kind in gpu)
    profiles = {name: kind["node_config"]["IamInstanceProfile"]["Name"] for name, kind in types.items()}
    assert profiles == {"head": "ghost-ray-head", "gpu": "ghost-ray-worker", "cpu": "ghost-ray-worker"}
    for kind in types.values():
        node = kind["node_config"]
        assert node["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
        assert all(disk["Ebs"]["Encrypted"] is True for disk in node["BlockDeviceMappings"])
    assert cluster["idle_timeout_minutes"] <= 15
    for command in (cluster["head_start_ray_commands"][-1], cluster["worker_start_ray_commands"][-1]):
        assert command.startswith("export RAY_AUTH_MODE=token;")
    assert "--dashboard-host=127.0.0.1" in cluster["head_start_ray_commands"][-1]
    # An image with a current driver on every node: the one that Ray takes by itself is years old.
    assert all("nvidia-driver" in kind["node_config"]["ImageId"] for kind in types.values())


def test_ray_opens_nothing_to_the_world_for_the_launched_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own preparation, against moto in this process: what it would start, and in which network."""
    import boto3
    from moto import mock_aws
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.utils import resource_cache
    from ray.autoscaler._private.util import prepare_config

    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    cluster = load("cluster.yaml")
    assert cluster["provider"]["use_internal_ips"] is True
    with mock_aws():
        resource_cache.cache_clear()
        ec2 = boto3.client("ec2", region_name=cluster["provider"]["region"])
        network = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=network, CidrBlock="10.9.1.0/24", AvailabilityZone="us-west-2a")
        own = {
            "SubnetIds": [subnet["Subnet"]["SubnetId"]],
            "SecurityGroupIds": [
                ec2.create_security_group(GroupName="own", Description="own", VpcId=network)["GroupId"]
            ],
        }
        before = ec2.describe_security_groups()["SecurityGroups"]
        for kind in cluster["available_node_types"].values():
            assert own.keys() <= kind["node_config"].keys(), "else Ray takes public subnets and opens SSH to all"
            kind["node_config"] |= own
        ready = bootstrap_aws(prepare_config(cluster))
        after = ec2.describe_security_groups()["SecurityGroups"]
        resource_cache.cache_clear()
    assert [group["GroupId"] for group in after] == [group["GroupId"] for group in before]
    assert not any("0.0.0.0/0" in str(group["IpPermissions"]) for group in after)
    for kind in ready["available_node_types"].values():
        assert {name: kind["node_config"][name] for name in own} == own


def test_only_what_is_installed_and_the_token_leave_this_machine() -> None:
    cluster = load("cluster.yaml")
    carried = {source: place for place, source in cluster["file_mounts"].items()}
    assert carried.pop("~/.ray/auth_token") == "~/.ray/auth_token"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"ghost_ray", "pyproject.toml", "constraints.txt", project["readme"], *project["license-files"]}
    assert carried.keys() == needed
    assert all((ROOT / source).exists() and place == f"~/ghost_ray/{source}" for source, place in carried.items())
    assert cluster["setup_commands"] == ["pip install -q -c ~/ghost_ray/constraints.txt ~/ghost_ray"]


def test_no_secret_travels_with_a_working_directory() -> None:
    ignored = (ROOT / ".rayignore").read_text().splitlines()
    assert {".git", ".venv", ".env", "*.pem", "*.key"} <= set(ignored)


def is_left_out(path: str) -> bool:
    """By Docker's rule: of the patterns that match the path or a folder of it, the last one decides."""
    left_out = False
    parents = [path, *(parent.as_posix() for parent in Path(path).parents)]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not pattern or line.startswith("#"):
            continue
        deep = pattern.removeprefix("**/")
        names = parents if deep == pattern else [Path(parent).name for parent in parents]
        if any(fnmatch.fnmatchcase(name, deep) and name != "." for name in names):
            left_out = not line.startswith("!")
    return left_out


def test_only_what_is_installed_and_run_goes_into_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"ghost_ray/cli/main.py", "jobs/refit.py", "pyproject.toml", "constraints.txt"}
    for path in needed | {project["readme"], *project["license-files"]}:
        assert not is_left_out(path), path
    for path in (".git/config", ".venv/bin/python", ".env", "server.pem", "id.key", "deploy/refit.yaml", "data/x.png"):
        assert is_left_out(path), path
    for path in ("ghost_ray/.env", "ghost_ray/cli/my.pem", "jobs/secret.key", "ghost_ray/__pycache__/x.pyc"):
        assert is_left_out(path), path
    steps = [line for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines() if line[:1] not in ("#", "")]
    assert [step for step in steps if step.startswith(("USER", "COPY"))] == [
        "USER root",
        "COPY . /opt/ghost_ray",  # owned by root
        "USER 1000",  # runAsNonRoot needs a number
    ]
    assert any(step.startswith("RUN") and "chmod -R go-w /opt/ghost_ray" in step for step in steps)


# The fields of ray.io/v1 in KubeRay 1.6 that these files may use; anything else would be dropped or refused.
TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def fields(needed: list[str], **known: Any) -> dict[str, Any]:
    return {"type": "object", "required": needed, "additionalProperties": False, "properties": known}


METADATA = fields([], name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?$"}, labels=TEXTS)
QUANTITIES = {"type": "object", "additionalProperties": {"type": "string", "pattern": r"^[0-9]+(m|Mi|Gi)?$"}}
ENVIRONMENT = {
    "type": "array",
    "items": fields(
        ["name"], name=TEXT, value=TEXT, valueFrom=fields(["secretKeyRef"], secretKeyRef=fields(["name", "key"]))
    ),
}
RESTRICTED = fields(
    ["runAsNonRoot", "allowPrivilegeEscalation", "capabilities", "seccompProfile"],
    runAsNonRoot={"const": True},
    allowPrivilegeEscalation={"const": False},
    capabilities={"const": {"drop": ["ALL"]}},
    seccompProfile={"const": {"type": "RuntimeDefault"}},
)
CONTAINER = fields(
    ["name", "image", "resources", "securityContext"],
    name=TEXT,
    image=TEXT,
    env=ENVIRONMENT,
    resources=fields(["requests", "limits"], requests=QUANTITIES, limits=QUANTITIES),
    securityContext=RESTRICTED,
    volumeMounts={
        "type": "array",
        "items": fields(["name", "mountPath"], name=TEXT, mountPath=TEXT, readOnly=FLAG),
    },
)
POD = fields(
    ["metadata", "spec"],
    metadata=METADATA,
    spec=fields(
        ["containers"],
        serviceAccountName=TEXT,
        automountServiceAccountToken=FLAG,
        restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
        nodeSelector=TEXTS,
        tolerations={"type": "array", "items": fields([], key=TEXT, operator=TEXT, effect=TEXT, value=TEXT)},
        containers={"type": "array", "minItems": 1, "items": CONTAINER},
        volumes={"type": "array", "items": fields(["name"], name=TEXT, configMap=fields(["name"], name=TEXT))},
    ),
)
RAY_CLUSTER = fields(
    ["headGroupSpec", "rayVersion", "authOptions"],
    rayVersion={"type": "string", "pattern": r"^2\.\d+\.\d+$"},
    authOptions=fields(["mode"], mode={"const": "token"}, secretName=TEXT),
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=fields(
        ["securityContext"],
        idleTimeoutSeconds=NUMBER,
        upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
        resources=fields([], requests=QUANTITIES, limits=QUANTITIES),
        securityContext=RESTRICTED,
    ),
    headGroupSpec=fields(
        ["rayStartParams", "template"],
        serviceType={"const": "ClusterIP"},
        enableIngress={"const": False},
        rayStartParams=TEXTS,
        template=POD,
    ),
    workerGroupSpecs={
        "type": "array",
        "items": fields(
            ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
            groupName=TEXT,
            replicas=NUMBER,
            minReplicas=NUMBER,
            maxReplicas=NUMBER,
            rayStartParams=TEXTS,
            template=POD,
        ),
    },
)
RAY_JOB_SPEC = fields(
    ["entrypoint", "rayClusterSpec"],
    entrypoint=TEXT,
    runtimeEnvYAML=TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    activeDeadlineSeconds={"type": "integer", "exclusiveMinimum": 0},
    backoffLimit=NUMBER,
    submitterConfig=fields([], backoffLimit=NUMBER),
    submitterPodTemplate=POD,
    shutdownAfterJobFinishes=FLAG,
    ttlSecondsAfterFinished=NUMBER,
    suspend=FLAG,
    rayClusterSpec=RAY_CLUSTER,
)


def resource(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return fields(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata=METADATA,
        spec=spec,
    )


CRON = r"^(\S+\s+){4}\S+$"
SCHEMAS = {
    "rayjob.yaml": resource("RayJob", RAY_JOB_SPEC),
    "raycronjob.yaml": resource(
        "RayCronJob",
        fields(
            ["schedule", "jobTemplate"],
            schedule={"type": "string", "pattern": CRON},
            suspend=FLAG,
            jobTemplate=RAY_JOB_SPEC,
        ),
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_kubernetes_files_have_only_fields_kuberay_knows(name: str) -> None:
    content = load(f"deploy/{name}")
    jsonschema.validate(content, SCHEMAS[name])
    content["spec"]["shutDownAfterJobFinishes"] = True
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMAS[name])


def test_the_scheduled_job_is_the_single_one() -> None:
    assert load("deploy/raycronjob.yaml")["spec"]["jobTemplate"] == load("deploy/rayjob.yaml")["spec"]


def policies() -> list[dict[str, Any]]:
    """The network policies: that of all pods, and what the head may do beyond it."""
    found = list(yaml.safe_load_all((ROOT / "deploy" / "networkpolicy.yaml").read_text()))
    assert all(policy["kind"] == "NetworkPolicy" for policy in found)
    return [policy["spec"] for policy in found]


def test_workers_may_neither_change_the_cluster_nor_reach_metadata_or_internal_hosts() -> None:
    job = load("deploy/rayjob.yaml")["spec"]
    cluster = job["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    assert head["serviceAccountName"] == "ghost-ray-head"
    for group in cluster["workerGroupSpecs"]:
        worker = group["template"]["spec"]
        assert worker["serviceAccountName"] == "ghost-ray-worker"
        assert worker["automountServiceAccountToken"] is False
        assert "nodeSelector" not in worker, "no label of spot nodes is known to every provider"
    assert job["submitterPodTemplate"]["spec"]["automountServiceAccountToken"] is False
    everyone, only_head = policies()
    assert everyone["policyTypes"] == ["Ingress", "Egress"]
    assert only_head["podSelector"]["matchLabels"]["ray.io/node-type"] == "head"

    def reached(policy: dict[str, Any], address: str) -> set[int]:
        where = ipaddress.ip_address(address)
        ports = set()
        for rule in policy["egress"]:
            for block in (to["ipBlock"] for to in rule["to"] if "ipBlock" in to):
                kept_out = [ipaddress.ip_network(one) for one in block["except"]]
                if where in ipaddress.ip_network(block["cidr"]) and not any(where in one for one in kept_out):
                    ports |= {port["port"] for port in rule["ports"]}
        return ports

    assert reached(everyone, "52.218.0.1") == {443}
    for private in ("169.254.169.254", "10.0.0.1", "172.20.0.1", "192.168.1.1"):
        assert reached(everyone, private) == set()
    assert reached(only_head, "172.20.0.1") == {443, 6443}
    assert reached(only_head, "169.254.169.254") == set()
    (operator,) = [
        peer
        for rule in everyone["ingress"]
        for peer in rule["from"]
        if "kuberay-operator" in str(peer.get("podSelector"))
    ]
    assert operator["namespaceSelector"]["matchLabels"], "a pod of any namespace could call itself the operator"


def test_every_mount_has_its_volume_and_the_network_policy_covers_every_pod() -> None:
    job = load("deploy/rayjob.yaml")["spec"]
    cluster = job["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    templates = [job["submitterPodTemplate"], *(group["template"] for group in groups)]
    selected = policies()[0]["podSelector"]["matchLabels"]
    for template in templates:
        assert selected.items() <= template["metadata"]["labels"].items()
        volumes = {volume["name"] for volume in template["spec"].get("volumes", [])}
        mounts = {mount["name"] for c in template["spec"]["containers"] for mount in c.get("volumeMounts", [])}
        assert mounts == volumes


def test_prometheus_may_scrape_what_the_pods_export() -> None:
    monitor = load("deploy/podmonitor.yaml")
    policy = policies()[0]
    assert monitor["spec"]["selector"] == policy["podSelector"]
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "15s"}]
    ports = [port["port"] for rule in policy["ingress"] for port in rule.get("ports", [])]
    assert 8080 in ports  # KubeRay's own number for it


def test_every_ray_container_has_room_on_its_disk() -> None:
    cluster = load("deploy/rayjob.yaml")["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        for kind in ("requests", "limits"):
            assert int(container["resources"][kind]["ephemeral-storage"].removesuffix("Gi")) >= 50


def test_the_configuration_beside_them_is_one_refit_accepts() -> None:
    config = build(RefitConfig, {}, str(ROOT / "deploy" / "refit.yaml"))
    assert config.network.gpus_per_actor == 1
    assert all(use.uri.startswith("s3://") for use in places_of(config))
    assert config.known is not None
    assert {config.fit.classes, config.known.classes} == {"s3://my-bucket/imagenet/classes.json"}
    entrypoint = load("deploy/rayjob.yaml")["spec"]["entrypoint"]
    script, _, mounted = re.fullmatch(r"python /opt/ghost_ray/(\S+) (--config) (\S+) --json", entrypoint).groups()
    assert (ROOT / script).is_file()
    assert mounted == "/etc/ghost-ray/refit.yaml"


def test_all_nodes_run_the_ray_that_the_package_asks_for() -> None:
    from packaging.requirements import Requirement

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    needed = next(Requirement(text) for text in declared if text.startswith("ray["))
    named = {
        version
        for path in ("cluster.yaml", "deploy/Dockerfile", "deploy/rayjob.yaml", "deploy/raycronjob.yaml")
        for version in re.findall(r"(?:rayproject/ray:|rayVersion: )(\d+\.\d+\.\d+)", (ROOT / path).read_text())
    }
    assert len(named) == 1
    assert needed.specifier.contains(named.pop())


def words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from words(item)
    elif isinstance(value, list):
        for item in value:
            yield from words(item)
    else:
        yield str(value)


SECRET = re.compile(
    r"AKIA[0-9A-Z]{16}|-----BEGIN|(?i:(secret|password|token|api_?key)[\w-]*\s*[=:]\s*['\"]?[\w+/]{16,})|[0-9a-f]{40,}"
)


@pytest.mark.parametrize(
    "path", ["cluster.yaml", *(f"deploy/{path.name}" for path in sorted((ROOT / "deploy").iterdir()))]
)
def test_no_file_holds_a_secret(path: str) -> None:
    assert SECRET.search("aws_secret_access_key=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY")
    text = (ROOT / path).read_text()
    assert not SECRET.search(text)
    if path.endswith(".yaml"):
        long = [
            word for word in words(list(yaml.safe_load_all(text))) if re.fullmatch(r"[A-Za-z0-9+/_-]{32,}={0,2}", word)
        ]
        assert not long


def metric_names_in_code() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "ghost_ray").rglob("*.py"):
        text = path.read_text()
        found |= {f"ray_{name}_total" for name in re.findall(r"\bcounter\(\s*\"(ghost_ray_\w+)\"", text)}
        found |= {f"ray_{name}" for name in re.findall(r"_gauge\(\s*\"(ghost_ray_\w+)\"", text)}
    return found


def test_the_dashboard_asks_for_the_metrics_the_jobs_emit() -> None:
    assert metrics_on_the_dashboard() == metric_names_in_code()
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)


def test_the_alerts_and_the_dashboard_ask_for_the_metrics_that_status_writes() -> None:
    from ghost_ray.registry.textfile import METRICS

    rules = [rule for group in load("deploy/alerts.yaml")["groups"] for rule in group["rules"]]
    assert all(rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"] for rule in rules)
    shown = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    name = re.compile(r"(?<!ray_)\bghost_ray_\w+")
    asked = {found for rule in rules for found in name.findall(rule["expr"])}
    assert asked <= METRICS.keys()
    assert {found for expression in shown for found in name.findall(expression)} == METRICS.keys()
    assert {"page", "ticket"} == {rule["labels"]["severity"] for rule in rules}
