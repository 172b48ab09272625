"""The planted faults of ``mutations.py`` are about the code that is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_planted_fault_is_found_in_the_code():
    program = Path(__file__).with_name("mutations.py")
    done = subprocess.run(
        [sys.executable, str(program), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
