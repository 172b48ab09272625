"""One implementation in one process: check every case, then time it, and print JSON.

Called by run.py: _worker.py MODULE IMPLEMENTATION DATA_FOLDER REPEATS BUDGET
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import _common


def main(module: str, name: str, data: str, repeats: str, budget: str) -> dict[str, Any]:
    benchmark = importlib.import_module(module)
    implementation = next(i for i in benchmark.IMPLEMENTATIONS if i.name == name)
    package = implementation.package
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return {"skipped": f"{package} is not installed"}

    results: dict[str, Any] = {}
    for folder in sorted(Path(data).iterdir()):
        case = _common.load_case(folder)
        try:
            prepared = implementation.prepare(case)
        except ImportError as error:
            return {"skipped": f"{package} cannot be imported: {error}"}
        if prepared is None:
            continue
        outputs = prepared.outputs(prepared.wait(prepared.call()))
        error = _common.deviation(outputs, case.expected)
        if not error <= case.tolerance:
            results[case.name] = {"error": error, "seconds": []}
            continue
        seconds = _common.time_calls(prepared, int(repeats), float(budget))
        results[case.name] = {"error": error, "seconds": seconds}
    about = {"device": _common.device(package), "versions": _common.versions(package)}
    return {"results": results, **about}


if __name__ == "__main__":
    try:
        answer = main(*sys.argv[1:])
    except Exception:
        answer = {"failed": traceback.format_exc(limit=-3)}
    # Frameworks print while they load; the answer is the last line.
    print("\n" + json.dumps(answer))
