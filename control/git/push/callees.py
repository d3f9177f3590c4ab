"""May who publishes a model give its users the models that it calls? Pure.

`repository.config.callees` says which those are: its scripts' and its ensemble's steps.
"""

from collections.abc import Mapping
from pathlib import Path

from control.access.scopes import Action, Principal, allows, why_not
from control.git.push.inspect import ModelInspection
from repository.config.callees import PARAMETER
from repository.findings import Finding
from repository.folders.walk import CONFIG_NAME


def callee_findings(
    publisher: Principal, inspected: Mapping[str, ModelInspection]
) -> list[Finding]:
    """What is wrong with models that call one that their publisher may not use. Those of the same
    push pass: who publishes them decides what they are."""
    return [
        Finding(
            Path(name) / CONFIG_NAME,
            0,
            0,
            "E455",
            f"the parameter '{PARAMETER}' or a step of the ensemble lets whoever may use '{name}' "
            f"use '{callee}': " + why_not(publisher, Action.INFER, callee),
        )
        for name, inspection in sorted(inspected.items())
        for callee in sorted(inspection.callees)
        if callee not in inspected
        and not allows(publisher, Action.INFER, callee.rpartition("@")[0] or callee)
    ]
