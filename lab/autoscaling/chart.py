"""The rule of the Helm chart: what deploy/helm/milepost asks KEDA and Kubernetes to do.

Reads the chart's own files, so that the simulation has the rule that users get. No YAML library is needed
for the few lines that it looks for; a line that is not there is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lab import toolbox
from lab.autoscaling.hpa import Behavior, Policy

FOLDER = Path(__file__).resolve().parents[2] / "deploy/helm/milepost"


@dataclass(frozen=True)
class Rule:
    """The values that decide about pods."""

    threads: int
    pods_min: int
    target: float
    #: 0: the CPU does not count.
    cpu_target: float
    behavior: Behavior
    request_cores: float
    prestop_seconds: float
    drain_seconds: float


def read(folder: Path = FOLDER) -> Rule:
    """The rule by the chart's defaults. Raises Unusable."""
    values = (folder / "values.yaml").read_text()
    template = (folder / "templates/scaledobject.yaml").read_text()
    scaling = _found(r"^autoscaling:\n((?:(?:  .*)?\n)+)", values, "autoscaling")
    up = _found(r"scaleUp:\n((?: {10}.*\n)+)", template, "scaleUp")
    down = _found(r"scaleDown:\n((?: {10}.*\n)+)", template, "scaleDown")
    window = r"stabilizationWindowSeconds: (.*)"
    return Rule(
        threads=int(_found(r'^threads: "\d+:(\d+)"', values, "threads")),
        pods_min=int(_number("minReplicas", scaling)),
        target=_number("targetUtilization", scaling),
        cpu_target=_number("targetCpuPercent", scaling) / 100,
        behavior=Behavior(
            up_window_seconds=_resolved(_found(window, up, "scaleUp's window"), scaling),
            up=_policies(up, scaling) or Behavior.up,
            down_window_seconds=_resolved(_found(window, down, "scaleDown's window"), scaling),
            down=_policies(down, scaling) or Behavior.down,
        ),
        request_cores=float(_found(r'requests: \{ cpu: "([\d.]+)"', values, "requests.cpu")),
        prestop_seconds=_number("preStopSeconds", values, ""),
        drain_seconds=_number("drainTimeoutSeconds", values, ""),
    )


def _policies(text: str, scaling: str) -> tuple[Policy, ...]:
    each = re.compile(r"\{ type: (Pods|Percent), value: (\{\{.*?\}\}|\d+), periodSeconds: (\d+) \}")
    found = each.findall(text)
    if len(found) != text.count("type:"):
        raise toolbox.Unusable(f"policies of another form than expected: {text.strip()}")
    return tuple(Policy(kind, _resolved(value, scaling), float(period)) for kind, value, period in found)


def _resolved(word: str, scaling: str) -> float:
    """A number, or that of the value which the template names."""
    name = re.fullmatch(r"\{\{ \.(\w+) \}\}", word.strip())
    return _number(name.group(1), scaling) if name else float(word)


def _number(name: str, text: str, indent: str = "  ") -> float:
    return float(_found(rf"^{indent}{name}: ([\d.]+)$", text, name))


def _found(pattern: str, text: str, what: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise toolbox.Unusable(f"{what}: not found in the chart {FOLDER}")
    return found.group(1)
