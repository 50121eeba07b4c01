"""The Helm chart in deploy/helm: what real helm makes of it, beside the schemas of those that read it.

Takes `helm` and `kubeconform` from the path, and from the environment KUBERNETES_SCHEMAS (the wheel of
kubernetes-validate), KEDA_SOURCE and PROMETHEUS_OPERATOR_SOURCE (folders of their Go modules), which
tools/conformance.sh sets. No cluster takes part: rules that a server checks beside the schemas are not seen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from serving import COMMAND, environment

pytestmark = pytest.mark.conformance

yaml = pytest.importorskip("yaml")
if not shutil.which("helm"):
    pytest.skip("needs helm", allow_module_level=True)

CHART = Path(__file__).resolve().parent.parent / "deploy/helm/milepost"
NEEDED = {"image.repository": "registry.example/shop", "image.tag": "v1", "app": "shop:app"}
#: Values that each turn on something that is off by default.
OPTIONS: dict[str, dict[str, object]] = {
    "default": {},
    "keda": {"autoscaling.enabled": True},
    "prometheus": {
        "autoscaling.enabled": True,
        "autoscaling.source": "prometheus",
        "autoscaling.prometheus.serverAddress": "http://prometheus:9090",
    },
    "monitor": {"podMonitor.enabled": True, "podMonitor.labels": {"release": "monitoring"}},
    "secret": {"admin.tokenSecret.name": "own", "admin.tokenSecret.key": "the.key"},
    "pods": {
        "env": [{"name": "DJANGO_SETTINGS_MODULE", "value": "shop.settings"}],
        "envFrom": [{"secretRef": {"name": "shop"}}],
        "volumes": [{"name": "media", "emptyDir": {}}],
        "volumeMounts": [{"name": "media", "mountPath": "/srv/media"}],
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "web", "operator": "Exists"}],
        "podLabels": {"team": "shop"},
        "serviceAccount.create": False,
        "podDisruptionBudget.enabled": False,
        "fullnameOverride": "shop",
        "threads": 8,
        "processes": 2,
    },
}


def arguments(values: dict[str, object]) -> list[str]:
    """helm's flags for these values."""
    return [f"--set-json={key}={json.dumps(value)}" for key, value in (NEEDED | values).items()]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["helm", *words], capture_output=True, text=True)


def template(values: dict[str, object]) -> subprocess.CompletedProcess[str]:
    # A helm that `go install` made takes itself for one of Kubernetes 1.20.
    return helm("template", "shop", str(CHART), "--kube-version=1.37", *arguments(values))


def objects(values: dict[str, object]) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name."""
    made = template(values)
    assert made.returncode == 0, made.stderr
    found = [each for each in yaml.safe_load_all(made.stdout) if each]
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found)
    return by_name


def core_schemas(folder: Path) -> None:
    """From the wheel of kubernetes-validate: each kind with the definitions that it needs, in one file."""
    prefix = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/"
    with zipfile.ZipFile(os.environ["KUBERNETES_SCHEMAS"]) as wheel:

        def read(name: str) -> dict[str, Any]:
            text = wheel.read(f"{prefix}{name}.json").decode()
            return json.loads(re.sub(r'"[^"]*#/\$defs/', '"#/definitions/', text))

        known = read("_definitions")["$defs"]
        for name in (
            "deployment-apps-v1",
            "service-v1",
            "poddisruptionbudget-policy-v1",
            "configmap-v1",
            "secret-v1",
            "serviceaccount-v1",
        ):
            schema = read(name)
            del schema["$id"], schema["$schema"]
            needed: dict[str, Any] = {}
            texts = [json.dumps(schema)]
            while texts:
                for used in re.findall(r'"#/definitions/([^"]+)"', texts.pop()):
                    if used not in needed:
                        needed[used] = known[used]
                        texts.append(json.dumps(known[used]))
            (folder / f"{name}.json").write_text(json.dumps(schema | {"definitions": needed}))


def closed(schema: Any) -> Any:
    """The same schema without unknown properties, as a server would drop them."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


def custom_schemas(folder: Path) -> None:
    """From the definitions in the modules of KEDA and the Prometheus Operator."""
    keda = Path(os.environ["KEDA_SOURCE"], "config/crd/bases")
    operator = Path(os.environ["PROMETHEUS_OPERATOR_SOURCE"], "example/prometheus-operator-crd")
    for file in (
        keda / "keda.sh_scaledobjects.yaml",
        keda / "keda.sh_triggerauthentications.yaml",
        operator / "monitoring.coreos.com_podmonitors.yaml",
    ):
        definition = yaml.safe_load(file.read_text())["spec"]
        for version in definition["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            kind, group = definition["names"]["kind"].lower(), definition["group"].split(".")[0]
            (folder / f"{kind}-{group}-{version['name']}.json").write_text(json.dumps(schema))


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needed = ("KUBERNETES_SCHEMAS", "KEDA_SOURCE", "PROMETHEUS_OPERATOR_SOURCE")
    missing = [name for name in needed if not os.environ.get(name)]
    if missing or not shutil.which("kubeconform"):
        pytest.skip(f"needs kubeconform and {', '.join(missing) or 'schemas'}: make conformance")
    folder = tmp_path_factory.mktemp("schemas")
    core_schemas(folder)
    custom_schemas(folder)
    return folder


def conform(schemas: Path, text: str) -> subprocess.CompletedProcess[str]:
    location = str(schemas / "{{.ResourceKind}}{{.KindSuffix}}.json")
    words = ["kubeconform", "-strict", "-summary", "-output=json", "-schema-location", location]
    return subprocess.run(words, input=text, capture_output=True, text=True)


@pytest.mark.parametrize("option", OPTIONS)
def test_helm_and_the_schemas_accept_the_chart(option: str, schemas: Path) -> None:
    linted = helm("lint", "--strict", "--kube-version=1.37", str(CHART), *arguments(OPTIONS[option]))
    assert linted.returncode == 0, linted.stdout + linted.stderr
    made = template(OPTIONS[option])
    assert made.returncode == 0, made.stderr
    checked = conform(schemas, made.stdout)
    assert checked.returncode == 0, checked.stdout
    summary = json.loads(checked.stdout)["summary"]
    assert summary["valid"] == len(objects(OPTIONS[option])), summary
    assert summary["skipped"] == 0


@pytest.mark.parametrize("name", ["replicas", "maxUnavailable", "minReplicaCount", "podMetricsEndpoints"])
def test_the_schemas_refuse_a_misspelled_field(name: str, schemas: Path) -> None:
    values = OPTIONS["keda"] if name == "minReplicaCount" else OPTIONS["monitor"]
    made = template(values).stdout
    assert f"{name}:" in made
    assert conform(schemas, made.replace(f"{name}:", f"{name}s:")).returncode == 1


def test_a_pod_has_no_rights_and_time_to_finish_its_requests() -> None:
    made = objects({"drainTimeoutSeconds": 60, "preStopSeconds": 7})
    pod = made["Deployment", "shop-milepost"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] == 72
    assert container["lifecycle"]["preStop"] == {"sleep": {"seconds": 7}}
    asked = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")
    }
    assert asked == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    assert made["Deployment", "shop-milepost"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    writable = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    assert {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in writable} == {
        "/tmp",
        "/var/spool/milepost",
    }


def test_keda_adds_the_utilization_of_all_pods_with_the_servers_token() -> None:
    made = objects(OPTIONS["keda"] | OPTIONS["secret"])
    assert "replicas" not in made["Deployment", "shop-milepost"]["spec"]
    trigger, processor = made["ScaledObject", "shop-milepost"]["spec"]["triggers"]
    assert processor == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}
    assert trigger["metricType"] == "AverageValue"
    facts = trigger["metadata"]
    assert (facts["valueLocation"], facts["aggregationType"], facts["targetValue"]) == (
        "utilization",
        "sum",
        "0.9",
    )
    service, namespace = re.split(r"[./:]+", facts["url"])[1:3]
    assert namespace == "default" and ("Service", service) in made
    (token,) = made["TriggerAuthentication", "shop-milepost"]["spec"]["secretTargetRef"]
    assert token == {"parameter": "token", "name": "own", "key": "the.key"}
    assert not [name for kind, name in made if kind == "Secret"]


def test_cpu_does_not_count_where_its_target_is_zero() -> None:
    made = objects(OPTIONS["keda"] | {"autoscaling.targetCpuPercent": 0, "resources.requests.cpu": None})
    (trigger,) = made["ScaledObject", "shop-milepost"]["spec"]["triggers"]
    assert trigger["type"] == "metrics-api"


@pytest.mark.parametrize("option", OPTIONS)
def test_milepost_accepts_the_configuration(option: str, tmp_path: Path) -> None:
    made = objects(OPTIONS[option])
    (text,) = [each["data"]["milepost.toml"] for (kind, _), each in made.items() if kind == "ConfigMap"]
    for path in ("/etc/milepost-admin/token", "/var/spool/milepost"):
        assert path in text
    text = text.replace("/etc/milepost-admin/token", "token").replace("/var/spool/milepost", ".")
    (tmp_path / "milepost.toml").write_text(text)
    (tmp_path / "token").write_text("0123456789abcdef\n")
    (tmp_path / "shop.py").write_text("def app(environ, start_response): ...\n")
    words = [COMMAND, "check", "--config", "milepost.toml"]
    checked = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"app": ""}, "app: set the application"),
        ({"image.tag": ""}, "image.tag: set the tag"),
        ({"terminationGracePeriodSeconds": 30}, "preStopSeconds + drainTimeoutSeconds + 5 = 40"),
        ({"config": 'drain_timeout = "1h"'}, "use the value `drainTimeoutSeconds`"),
        ({"config": 'access_log = "-"\n  bind = ":80"'}, "use the value `port`"),
        ({"env": [{"name": "MILEPOST_DRAIN_TIMEOUT", "value": "1h"}]}, "would override the configuration"),
        ({"admin.port": 8000}, "admin.port: must differ"),
        ({"autoscaling.enabled": True, "autoscaling.maxReplicas": 1}, "1 is less than minReplicas, 2"),
        ({"autoscaling.enabled": True, "autoscaling.source": "prometheus"}, "serverAddress: set the address"),
        (
            {"autoscaling.enabled": True, "resources.requests.cpu": None, "resources.limits.cpu": None},
            "targetCpuPercent: set resources.requests.cpu",
        ),
        ({"autoscaling.minReplicas": 0}, "/autoscaling/minReplicas"),
        ({"image.tag": 1.1}, "/image/tag"),
        ({"replicas": 3}, "'replicas' not allowed"),
    ],
)
def test_wrong_values_are_refused_with_their_names(values: dict[str, object], message: str) -> None:
    made = template(values)
    assert made.returncode != 0
    assert message in made.stderr


def test_settings_of_tables_may_have_the_names_of_the_charts_own() -> None:
    assert template({"config": '[pool.slow]\nthreads = "2:2"\n'}).returncode == 0
