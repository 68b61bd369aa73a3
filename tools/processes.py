# SPDX-License-Identifier: MIT
"""Programs run in directories of their own, and timed: what tools/demo and
tools/bench_opencl share."""
import os
import subprocess
import tempfile
import time

LIMIT_S = 600


class Failure(Exception):
    pass


class Place:
    """Directories of this run and the environment that points there."""

    def __init__(self, root):
        self.root = root
        self.count = 0

    def fresh(self, name):
        self.count += 1
        path = os.path.join(self.root, f"{name}-{self.count}")
        os.mkdir(path, 0o700)
        return path

    def environment(self, pocl, kiln):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("KILN_", "POCL_", "OPENCL_", "OCL_",
                                        "OPENCV_", "PYTHON", "XDG_"))}
        home = self.fresh("home")
        for name in ("cache", "data"):
            os.mkdir(os.path.join(home, name), 0o700)
        kept.update({
            "HOME": home,
            "XDG_CACHE_HOME": os.path.join(home, "cache"),
            "XDG_DATA_HOME": os.path.join(home, "data"),
            "OCL_ICD_VENDORS": "pocl.icd",
            "OPENCV_OPENCL_DEVICE": ":CPU:",
            "OPENCV_OPENCL_CACHE_ENABLE": "0",
            "POCL_CACHE_DIR": pocl,
            "KILN_DIR": kiln,
        })
        return kept


def run_directory(build):
    """A directory for one run.  Not in /tmp: ext4 without a journal looks past
    every inode freed within a minute before it gives one out, and where tests
    make and remove thousands of files, creating one took 0.6 ms instead of
    0.02; PoCL creates 40 when it unpacks CLBlast's binary."""
    return tempfile.mkdtemp(prefix="run-", dir=build)


def timed(command, environment):
    """Wall time in ms of a program that says "ok" when its result is right."""
    start = time.perf_counter()
    try:
        ended = subprocess.run(command, env=environment, timeout=LIMIT_S,
                               stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               close_fds=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)}: not done in {LIMIT_S} s")
    ms = (time.perf_counter() - start) * 1000
    if ended.returncode or not ended.stdout.startswith("ok"):
        raise Failure(f"{' '.join(command)}: status {ended.returncode}\n"
                      f"{ended.stdout}{ended.stderr}".rstrip())
    return ms
