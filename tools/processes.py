# SPDX-License-Identifier: MIT
"""Programs run in directories of their own, and timed: what tools/demo,
tools/bench_opencl and tools/programs share."""
import datetime
import glob
import os
import platform
import re
import subprocess
import sys
import tempfile
import time

LIMIT_S = 600


class Failure(Exception):
    pass


class Progress:
    """One line that is written over, on a terminal; else one for each
    program."""

    def __init__(self, steps):
        self.terminal = (sys.stderr.isatty() and
                         os.environ.get("TERM", "dumb") != "dumb")
        self.steps = steps
        self.done = 0
        self.program = None

    def step(self, program, what):
        if self.terminal:
            width = 20
            full = width * self.done // self.steps
            bar = "#" * full + "-" * (width - full)
            sys.stderr.write(f"\r[{bar}] {program}: {what}\x1b[K")
            sys.stderr.flush()
        elif program != self.program:
            print(f"{program} ...", file=sys.stderr, flush=True)
        self.program = program
        self.done += 1

    def end(self):
        if self.terminal:
            sys.stderr.write("\r\x1b[K")


def own_environment():
    """What this process was started with, less what steers drivers, kiln and
    where programs keep their files."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("KILN_", "POCL_", "OPENCL_", "OCL_",
                                    "OPENCV_", "PYTHON", "XDG_"))}


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
        kept = own_environment()
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


def says_ok(ended):
    return not ended.returncode and ended.stdout.startswith("ok")


def timed(command, environment, is_right=says_ok):
    """Wall time in ms of a program that says "ok" when its result is right, or
    of which is_right() can tell from what it left."""
    start = time.perf_counter()
    try:
        ended = subprocess.run(command, env=environment, timeout=LIMIT_S,
                               stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               close_fds=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)}: not done in {LIMIT_S} s")
    ms = (time.perf_counter() - start) * 1000
    if not is_right(ended):
        raise Failure(f"{' '.join(command)}: status {ended.returncode}\n"
                      f"{ended.stdout}{ended.stderr}".rstrip())
    return ms


def output_of(command):
    """What a tool prints that a bare system may lack."""
    try:
        ended = subprocess.run(command, check=False, text=True,
                               stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return "unknown"
    return ended.stdout.strip()


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"model name\s*: (.*)", file.read())
    name = found.group(1) if found else platform.machine()
    return f"{name}, {os.cpu_count()} online"


def about_machine(build, root):
    """Where and when figures were taken, for files of figures."""
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return {
        "host": platform.node(),
        "cpu": cpu_name(),
        "fs": output_of(["findmnt", "-n", "-o", "FSTYPE", "-T", root]),
        "build": build,
        "commit": output_of(["git", "-C", source, "rev-parse", "--short",
                             "HEAD"]),
        "date": datetime.datetime.now(datetime.timezone.utc)
                .isoformat(timespec="seconds"),
    }


def darktable_kernels(build):
    """Debian's darktable, unpacked but not installed: its OpenCL sources."""
    root = os.path.join(build, "darktable")
    kernels = os.path.join(root, "usr", "share", "darktable", "kernels")
    if not os.path.exists(os.path.join(kernels, "basic.cl")):
        os.makedirs(root, exist_ok=True)
        print("downloading darktable's package for its kernels",
              file=sys.stderr, flush=True)
        download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root",
                    "download", "darktable"]
        if subprocess.run(download, cwd=root, check=False).returncode:
            subprocess.run(["apt-get", "-qq", "update"], check=True)
            subprocess.run(download, cwd=root, check=True)
        package = glob.glob(os.path.join(root, "darktable_*.deb"))[-1]
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return kernels
