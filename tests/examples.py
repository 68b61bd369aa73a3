#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples.py CACHED_SAXPY NVRTC_SAXPY: examples for authors do what they say.
Drivers are chosen by OCL_ICD_VENDORS.  TAP."""
import os
import subprocess
import sys
import tempfile

cached_saxpy, nvrtc_saxpy = sys.argv[1:]


def run(command, directory):
    environment = dict(os.environ, KILN_DIR=os.path.join(directory, "kiln"),
                       POCL_CACHE_DIR=os.path.join(directory, "pocl"))
    ran = subprocess.run(command, text=True, check=False, env=environment,
                         stdout=subprocess.PIPE)
    return ran.returncode, ran.stdout


print("1..2")
with tempfile.TemporaryDirectory() as directory:
    runs = [run([cached_saxpy], directory) for _ in range(2)]
    ends = [", built\n", ", from the cache\n"]
    ok = all(code == 0 and text.endswith(end)
             for (code, text), end in zip(runs, ends))
    print("ok" if ok else "not ok",
          "1 the second start of cached_saxpy builds nothing")

    command = [nvrtc_saxpy, f"log:{directory}/store"]
    runs = [run(command, directory) for _ in range(2)]
    ok = [code for code, _ in runs] == [0, 0]
    if "left out" not in runs[0][1]:
        ok = ok and runs[0][1].endswith(", compiled\n") \
            and runs[1][1].endswith(", from the cache\n")
    print("ok" if ok else "not ok",
          "2 nvrtc_saxpy compiles once, or says that it cannot")
sys.exit(0)
