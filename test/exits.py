#!/usr/bin/env python3
"""exits.py CODE COMMAND...: runs a command, fails unless it exits with CODE.

Output passes through; a command that dies by a signal never has the right code.
"""
import subprocess
import sys

expected, command = int(sys.argv[1]), sys.argv[2:]
actual = subprocess.run(command, check=False).returncode
if actual != expected:
    print(f"exits.py: expected exit code {expected}, got {actual}: {command}")
    sys.exit(1)
