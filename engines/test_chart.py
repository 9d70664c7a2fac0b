"""The chart renders what is kept, by the schemas of Kubernetes, KEDA and the Prometheus operator.

``python -m engines.test_chart`` keeps what it renders now.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from engines.downloads import (
    HELM,
    KEDA,
    KUBECONFORM,
    PROMETHEUS_OPERATOR,
    ROOT,
    go_module,
    go_program,
)
from headwater.cli import app
from headwater.settings.schema import SETTINGS
from tests.docs.test_commands import parse

CHART = ROOT / "deploy" / "chart"
RENDERED = ROOT / "deploy" / "rendered"
_RULES = "PrometheusRule"
CASES = ("default", "all")
OLDEST = "1.25.0"
_SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
NEWEST = max(
    (folder.name[1:].partition("-")[0] for folder in _SCHEMAS.iterdir()),
    key=lambda version: [int(part) for part in version.split(".")],
)
VERSIONS = (OLDEST, NEWEST)
every_case = pytest.mark.parametrize(
    ("case", "version"), [(case, version) for case in CASES for version in VERSIONS]
)
_TELEMETRY = ROOT / "src" / "headwater" / "telemetry"
_CUSTOM = (
    (KEDA, "config/crd/bases", ("scaledobjects", "triggerauthentications")),
    (PROMETHEUS_OPERATOR, "example/prometheus-operator-crd", ("podmonitors", "prometheusrules")),
)


@cache
def rendered(case: str, version: str = OLDEST) -> str:
    """Return what the chart makes of the values of a case, for a version of Kubernetes."""
    values = str(RENDERED / f"{case}.values.yaml")
    return helm("template", "shop", "--kube-version", version, "--values", values)


def helm(command: str, *arguments: str) -> str:
    program = str(go_program(HELM))
    ran = subprocess.run(
        [program, command, *arguments, str(CHART)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def objects(case: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(rendered(case)) if each]


def kept(case: str, version: str = OLDEST) -> str:
    """Return what is kept of a case: all but the dashboard and the alerts, which are files."""
    texts = [
        text
        for text in rendered(case, version).split("---\n")
        if not re.search("^kind: (ConfigMap|PrometheusRule)$", text, flags=re.M)
    ]
    return "---\n".join(texts)


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a folder of schemas for each version of Kubernetes."""
    target = tmp_path_factory.mktemp("schemas")
    for version in VERSIONS:
        folder = target / f"v{version}"
        folder.mkdir()
        for file in (_SCHEMAS / f"v{version}-local-strict").glob("*.json"):
            # Each has an address that none of them can be fetched from.
            text = file.read_text(encoding="utf-8").replace('"/api/_def', '"_def')
            schema = {name: value for name, value in json.loads(text).items() if name != "$id"}
            (folder / file.name).write_text(json.dumps(schema), encoding="utf-8")
        for name, schema in custom_schemas().items():
            (folder / name).write_text(json.dumps(schema), encoding="utf-8")
    return target


@cache
def custom_schemas() -> dict[str, Any]:
    """Return the schemas of custom objects, by the names of their files."""
    schemas = {}
    for module, folder, names in _CUSTOM:
        for name in names:
            [file] = (go_module(module) / folder).glob(f"*_{name}.yaml")
            definition = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
            kind = f"{definition['names']['kind'].lower()}-{definition['group'].partition('.')[0]}"
            for version in definition["versions"]:
                schema = _closed(version["schema"]["openAPIV3Schema"])
                schemas[f"{kind}-{version['name']}.json"] = schema
    return schemas


def conform(schemas: Path, text: str, version: str) -> dict[str, str]:
    """Return what kubeconform says of each object of a text, by its kind and name."""
    place = f"{schemas}/v{version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    options = ("-strict", "-verbose", "-output=json", f"-kubernetes-version={version}")
    command = [str(go_program(KUBECONFORM)), *options, f"-schema-location={place}"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    found = json.loads(ran.stdout)["resources"]
    return {f"{each['kind']} {each['name']}": each.get("msg") or each["status"] for each in found}


@every_case
def test_the_chart_renders_what_is_kept(case: str, version: str) -> None:
    text = (RENDERED / f"{case}.yaml").read_text(encoding="utf-8")
    assert kept(case, version) == text, "python -m engines.test_chart keeps the new one"


@every_case
def test_lint_finds_nothing(case: str, version: str) -> None:
    values = str(RENDERED / f"{case}.values.yaml")
    helm("lint", "--strict", "--quiet", "--kube-version", version, "--values", values)


def test_the_oldest_version_is_the_one_of_the_chart() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={OLDEST}-0"


@every_case
def test_every_object_has_the_shape_of_its_kind(case: str, version: str, schemas: Path) -> None:
    found = conform(schemas, rendered(case, version), version)
    assert len(found) == len(objects(case))
    assert found == dict.fromkeys(found, "statusValid")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_is_found_in_every_object(version: str, schemas: Path) -> None:
    wrong = [document | {"spek": {}} for document in objects("all")]
    found = conform(schemas, yaml.safe_dump_all(wrong), version)
    assert len(found) == len(wrong)
    assert all("'spek' not allowed" in said for said in found.values()), found


def _closed(schema: Any) -> Any:
    """Refuse fields that a schema does not name, as a server does when it is asked to be strict."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    if "properties" in schema and schema["properties"] and not schema.get("additionalProperties"):
        closed["additionalProperties"] = False
    return closed


@pytest.mark.parametrize("case", CASES)
def test_containers_run_commands_with_settings_that_exist(case: str) -> None:
    variables = {setting.variable for setting in SETTINGS.values()}
    commands = set()
    for container in containers(case):
        parse(container["args"])
        commands.add(container["args"][0])
        assert {variable["name"] for variable in container["env"]} <= variables
        assert container["securityContext"]["readOnlyRootFilesystem"]
    assert commands == {"serve", "worker", "migrate"}


def containers(case: str) -> Iterator[dict[str, Any]]:
    for document in objects(case):
        if document["kind"] in {"Deployment", "Job"}:
            yield from document["spec"]["template"]["spec"]["containers"]


def test_dashboard_and_alerts_are_those_of_the_package() -> None:
    kinds = {document["kind"]: document for document in objects("all")}
    shown = json.loads(kinds["ConfigMap"]["data"]["headwater.json"])
    assert shown == json.loads((_TELEMETRY / "dashboard.json").read_bytes())
    linked = CliRunner().invoke(
        app, ["metrics", "alerts", "--docs-url", "https://docs.example/latest"]
    )
    assert kinds[_RULES]["spec"] == yaml.safe_load(linked.stdout)


def test_alerts_have_no_link_without_an_address_of_the_docs() -> None:
    values = ("--values", str(RENDERED / "all.values.yaml"), "--set", "metrics.alerts.docsUrl=")
    text = helm("template", "shop", "--kube-version", OLDEST, *values)
    [rules] = [each for each in yaml.safe_load_all(text) if each and each["kind"] == _RULES]
    assert rules["spec"] == yaml.safe_load((_TELEMETRY / "alerts.yml").read_bytes())


def test_helm_deletes_what_it_made_before_the_release() -> None:
    hooks = [each["metadata"].get("annotations", {}) for each in objects("all")]
    policies = [each["helm.sh/hook-delete-policy"] for each in hooks if "helm.sh/hook" in each]
    assert policies == ["before-hook-creation,hook-succeeded"] * 2


def test_an_image_has_to_be_named() -> None:
    with pytest.raises(AssertionError, match=r"image\.repository: name an image"):
        helm("template", "shop", "--kube-version", OLDEST)


def main() -> None:
    """Keep what the chart renders now."""
    for case in CASES:
        (RENDERED / f"{case}.yaml").write_text(kept(case), encoding="utf-8")


if __name__ == "__main__":
    main()
