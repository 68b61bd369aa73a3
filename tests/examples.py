#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""examples.py CACHED_SAXPY NVRTC_SAXPY SESSION_SHADERS KILN ICD: examples for
authors do what they say, on the driver stand-in ICD and on PoCL, with a home of
their own and under `kiln run`.  TAP."""
import os
import subprocess
import sys
import tempfile

cached_saxpy, nvrtc_saxpy, session_shaders, kiln, icd = sys.argv[1:]
POCL = "/etc/OpenCL/vendors/pocl.icd"
n_tests = 0


def run(command, home, **variables):
    """Exit status and output, with nothing of this user's in reach."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("KILN_", "XDG_", "POCL_"))}
    environment.update(HOME=home, **variables)
    ran = subprocess.run(command, text=True, check=False, env=environment,
                         stdout=subprocess.PIPE)
    return ran.returncode, ran.stdout


def tell(ok, sentence):
    global n_tests
    n_tests += 1
    print("ok" if ok else "not ok", n_tests, sentence)


def n_builds(path):
    """Builds from source since the last time."""
    with open(path) as file:
        n = file.read().split("\n").count("build-source")
    os.unlink(path)
    return n


def ends_with(runs, *ends):
    return all(code == 0 and text.endswith(end + "\n")
               for (code, text), end in zip(runs, ends))


def second_start(vendors, name):
    with tempfile.TemporaryDirectory() as home:
        runs = [run([cached_saxpy], home, OCL_ICD_VENDORS=vendors,
                    POCL_CACHE_DIR=os.path.join(home, f"pocl{i}"))
                for i in range(2)]
    tell(ends_with(runs, ", built", ", from the cache"),
         f"the second start of cached_saxpy builds nothing on {name}")


def with_kiln_run():
    under = [kiln, "run", "--wait", "--", cached_saxpy]
    with tempfile.TemporaryDirectory() as home:
        calls = os.path.join(home, "calls")
        more = {"OCL_ICD_VENDORS": icd, "KILN_TEST_ICD_CALLS": calls}
        runs = [run(under, home, **more)]
        cold = n_builds(calls)
        runs.append(run(under, home, **more))
        warm = n_builds(calls)
        runs.append(run([cached_saxpy], home, **more))
        # The first was built by the program, and once more by the worker.
        tell(ends_with(runs, ", built", ", built", ", from the cache")
             and (cold, warm, n_builds(calls)) == (2, 0, 0),
             "what kiln run keeps is found under kiln run and without")
    with tempfile.TemporaryDirectory() as home:
        calls = os.path.join(home, "calls")
        more["KILN_TEST_ICD_CALLS"] = calls
        runs = [run([cached_saxpy], home, **more)]
        cold = n_builds(calls)
        runs.append(run(under, home, **more))
        tell(ends_with(runs, ", built", ", built")
             and (cold, n_builds(calls)) == (1, 0),
             "what the library keeps is found under kiln run")


def nvrtc():
    with tempfile.TemporaryDirectory() as home:
        runs = [run([nvrtc_saxpy, f"log:{home}/store"], home)
                for _ in range(2)]
    tell("left out" in runs[0][1] and runs[0][0] == 0
         or ends_with(runs, ", compiled", ", from the cache"),
         "nvrtc_saxpy compiles once, or says that it cannot")


def shaders():
    with tempfile.TemporaryDirectory() as home:
        runs = [run([session_shaders, driver], home) for driver in "112"]
    said = [[line.split(" ms, ")[-1] for line in text.splitlines()]
            for _, text in runs]
    none, all_of_them = "0 compiled", "8 compiled"
    tell("left out" in runs[0][1] and runs[0][0] == 0
         or [code for code, _ in runs] == [0, 0, 0] and said == [
             [all_of_them, none], [none, none],
             [all_of_them + ", the cache was another driver's", none]],
         "session_shaders compiles once for a driver, or says that it cannot")


second_start(icd, "the stand-in")
if os.path.exists(POCL):
    second_start("pocl.icd", "PoCL")
with_kiln_run()
nvrtc()
shaders()
print(f"1..{n_tests}")
