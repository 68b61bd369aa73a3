# SPDX-License-Identifier: MIT
"""Which programs tools/programs runs, with what, and what of their output is
a time or a speed.

All are Debian 12's, unchanged.  {files} is tests/programs, where scripts for
interpreters and libraries are; {build} is the build directory."""
import dataclasses
import os
import shutil
import subprocess

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = os.path.join(SOURCE, "tests", "programs")
PYTHON = "/usr/bin/python3"	# Debian's own sees Debian's modules
ALL = ("pocl", "rusticl", "oclgrind")


@dataclasses.dataclass(frozen=True)
class Driver:
    environment: dict


DRIVERS = {
    "pocl": Driver({"OCL_ICD_VENDORS": "pocl.icd"}),
    "rusticl": Driver({"OCL_ICD_VENDORS": "rusticl.icd",
                       "RUSTICL_ENABLE": "llvmpipe"}),
    # Else it is not cached: its reports need the sources.
    "oclgrind": Driver({"OCL_ICD_VENDORS":
                        "/usr/lib/oclgrind/liboclgrind-rt-icd.so",
                        "OCLGRIND_MAX_ERRORS": "0"}),
}


@dataclasses.dataclass
class Program:
    name: str
    package: str
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    stdin: str = ""
    setup: object = None	# (directory, environment): makes input files
    numbers: tuple = ()		# patterns of what differs from run to run
    statuses: tuple = (0,)
    misses: tuple = ()		# reasons for which it is not cached when warm
    keeps_home: bool = False	# its own cache is there in the warm runs
    has_kernels: bool = True
    fails_natively: bool = False	# how it ends is not compared
    is_long: bool = False
    warm_runs: int = 0		# 0: as usual
    drivers: tuple = ("pocl",)

    def missing(self):
        """What is not installed; None if it can run."""
        if not self.version():
            return self.package
        return None if shutil.which(self.command[0]) else self.command[0]

    def version(self):
        asked = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Status}|${Version}", self.package],
            check=False, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        state, _, version = asked.stdout.partition("|")
        return version if state.endswith("ok installed") else ""

    def said(self):
        """The command as a person would type it."""
        return " ".join(word.replace(SOURCE + os.sep, "")
                        for word in self.command)


# ---- Input files ------------------------------------------------------------

def made_by(script, *words):
    """A setup that runs one of tests/programs' scripts where files go."""
    def setup(directory, environment):
        subprocess.run([PYTHON, os.path.join(FILES, script), *words],
                       cwd=directory, env=environment, check=True,
                       stdin=subprocess.DEVNULL)
    return setup


def compiled_erlang(directory, environment):
    """The package's example, as its Makefile compiles it."""
    subprocess.run(["erlc", "/usr/share/doc/erlang-cl/examples/cl_compile.erl"],
                   cwd=directory, env=environment, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


# ---- Several of one kind ----------------------------------------------------

def python(script, *words):
    return [PYTHON, os.path.join(FILES, script), *words]


def ffmpeg(graph):
    """One filter over a generated clip; the frames' digests are the output."""
    command = ["ffmpeg", "-hide_banner", "-nostdin", "-v", "error",
               "-init_hw_device", "opencl=o:0.0", "-filter_hw_device", "o"]
    return command + ["-filter_complex", graph, "-f", "framemd5", "-"]


CLIP = "testsrc2=s=320x240:r=5:d=1"
FFMPEG = {
    "avgblur": "format=yuv420p,hwupload,avgblur_opencl=5",
    "boxblur": "format=yuv420p,hwupload,boxblur_opencl=3:1",
    "unsharp": "format=yuv420p,hwupload,unsharp_opencl",
    "convolution": "format=yuv420p,hwupload,"
                   "convolution_opencl='0 -1 0 -1 5 -1 0 -1 0'",
    "sobel": "format=yuv420p,hwupload,sobel_opencl",
    "erosion": "format=yuv420p,hwupload,erosion_opencl",
    "transpose": "format=yuv420p,hwupload,transpose_opencl",
    "nlmeans": "format=yuv420p,hwupload,nlmeans_opencl=s=2:p=3:r=5",
    "deshake": "format=yuv420p,hwupload,deshake_opencl",
    "colorkey": "format=rgba,hwupload,colorkey_opencl=green",
}


def ffmpeg_filters():
    for name, graph in FFMPEG.items():
        out = "rgba" if name == "colorkey" else "yuv420p"
        yield Program(f"ffmpeg {name}_opencl", "ffmpeg",
                      ffmpeg(f"{CLIP},{graph},hwdownload,format={out}"),
                      drivers=("pocl", "rusticl"))
    two = (f"{CLIP},format=yuv420p,hwupload[a];"
           "color=red:s=80x60:r=5:d=1,format=yuv420p,hwupload[b];[a][b]")
    end = ",hwdownload,format=yuv420p"
    yield Program("ffmpeg overlay_opencl", "ffmpeg",
                  ffmpeg(two + "overlay_opencl=20:20" + end))
    yield Program("ffmpeg xfade_opencl", "ffmpeg",
                  ffmpeg(two.replace("80x60", "320x240")
                         + "xfade_opencl=duration=0.5:offset=0.2" + end))
    yield Program("ffmpeg program_opencl", "ffmpeg", ffmpeg(
        f"{CLIP},format=rgba,hwupload,program_opencl="
        f"source={FILES}/invert.cl:kernel=invert,hwdownload,format=rgba"))


HASHCAT_NUMBERS = (
    r"(?m)^(Started|Stopped|Time\.|Speed\.|Hardware\.Mon|Kernel\.|Restore)"
    r".*$",
    r"(?m)^.*\d+ (MB|seconds?|secs?)\b.*$", r"(?m)^Candidate.*$",
    r"(?m)^\s*$\n?")


def hashcat(name, words, **more):
    return Program(
        f"hashcat {name}", "hashcat",
        ["hashcat", "--force", "--potfile-disable", "--restore-disable"]
        + words, numbers=HASHCAT_NUMBERS, statuses=(0, 1), warm_runs=2, **more)


CLBLAST_NUMBERS = (r" *\d+(\.\d+)? +ms", r"\d+\.\d+ +\|", r"\d+\.\d+ GB/s",
                   r"\d+\.\d+ GFLOPS", r"\"\w*(time|date)\w*\": .*",
                   r"(?m)^\* (Best parameters|Got average|Found best).*$")
CLFFT_NUMBERS = (r"(?m)^Execution (wall time|gflops).*$",)
CLPEAK_NUMBERS = (r": \d+(\.\d+)?( us)?",)
WARNINGS = r"(?m)^\d+ warnings? generated\.\n"


# ---- The list ---------------------------------------------------------------

PROGRAMS = [
    Program("clinfo", "clinfo", ["clinfo"], drivers=ALL),
    Program("lstopo", "hwloc", ["lstopo-no-graphics", "--of", "console"],
            has_kernels=False),
    Program("asl-hardware", "asl-tools", ["asl-hardware"], has_kernels=False),
    Program("clpeak", "clpeak", ["clpeak", "--kernel-latency"],
            numbers=CLPEAK_NUMBERS, drivers=ALL),
    Program("clpeak, compute", "clpeak", ["clpeak", "--compute-sp"],
            numbers=CLPEAK_NUMBERS, is_long=True),
    hashcat("MD5, mask", ["-m", "0", "-a", "3",
                          "8743b52063cd84097a65d1633f5c74f5", "?d?d?d?d"]),
    hashcat("MD5, mask, own cache",
            ["-m", "0", "-a", "3", "8743b52063cd84097a65d1633f5c74f5",
             "?d?d?d?d"], keeps_home=True),
    hashcat("SHA-256, words", ["-m", "1400", "-a", "0",
                               "a" * 64, os.path.join(FILES, "words.txt")],
            is_long=True),
    Program("pyopencl", "python3-pyopencl", python("pyopencl_sums.py"),
            environment={"PYOPENCL_NO_CACHE": "1"}, drivers=ALL),
    Program("pyopencl, own cache", "python3-pyopencl",
            python("pyopencl_sums.py"), keeps_home=True),
    Program("pyopencl, headers", "python3-pyopencl",
            python("pyopencl_headers.py"), setup=made_by("make_headers.py"),
            environment={"PYOPENCL_NO_CACHE": "1"}, drivers=ALL),
    Program("pyopencl, compile and link", "python3-pyopencl",
            python("pyopencl_link.py"),
            environment={"PYOPENCL_NO_CACHE": "1"}),
    Program("gpyfft", "python3-gpyfft", python("gpyfft_transform.py"),
            environment={"PYOPENCL_NO_CACHE": "1"}),
    Program("clFFT-client 1D", "clfft-client",
            ["clFFT-client", "-x", "1024", "-p", "2"], numbers=CLFFT_NUMBERS),
    Program("clFFT-client 2D", "clfft-client",
            ["clFFT-client", "-x", "128", "-y", "96", "-p", "2"],
            numbers=CLFFT_NUMBERS),
    Program("clFFT-client double, inverse", "clfft-client",
            ["clFFT-client", "-x", "243", "--double", "--inv", "-o"],
            numbers=CLFFT_NUMBERS),
    *ffmpeg_filters(),
    Program("x264 --opencl", "x264",
            ["x264", "--opencl", "--quiet", "--rc-lookahead", "20", "--threads",
             "1", "--input-res", "320x240", "--fps", "5", "-o", "out.264",
             "in.yuv"], setup=made_by("make_clip.py"), has_kernels=False),
    Program("leela-zero", "leela-zero",
            ["/usr/lib/leelaz/bin/leelaz", "-w", "weights.txt", "-g",
             "--noponder", "-v", "5", "-t", "1", "-s", "1", "--gpu", "0",
             "--precision", "single"],
            stdin="genmove b\ngenmove w\nquit\n",
            setup=made_by("make_weights.py"), keeps_home=True, is_long=True,
            numbers=(r"(?m)^\(\d+/\d+\).*\n", r"\d+ n/s", r"\d+\.\d+ seconds",
                     r"\d+ MHz", r"\d+ MiB")),
    Program("OpenCV", "python3-opencv",
            [PYTHON, os.path.join(SOURCE, "examples", "opencv_ops.py")],
            environment={"OPENCV_OPENCL_DEVICE": ":CPU:",
                         "OPENCV_OPENCL_CACHE_ENABLE": "0"}),
    Program("OpenCV, own cache", "python3-opencv",
            [PYTHON, os.path.join(SOURCE, "examples", "opencv_ops.py")],
            environment={"OPENCV_OPENCL_DEVICE": ":CPU:"}, keeps_home=True),
    Program("OpenCV, features", "python3-opencv", python("opencv_features.py"),
            environment={"OPENCV_OPENCL_DEVICE": ":CPU:",
                         "OPENCV_OPENCL_CACHE_ENABLE": "0"}),
    Program("CLBlast tuner, xdot", "clblast-utils",
            ["clblast_tuner_xdot", "-n", "65536", "-runs", "2"],
            numbers=CLBLAST_NUMBERS),
    Program("CLBlast test, xaxpy", "clblast-tests",
            ["clblast_test_xaxpy"], numbers=CLBLAST_NUMBERS),
    Program("CLBlast test, xgemv", "clblast-tests",
            ["clblast_test_xgemv"], numbers=CLBLAST_NUMBERS, is_long=True),
    Program("CLBlast test, xgemm", "clblast-tests",
            ["clblast_test_xgemm"], numbers=CLBLAST_NUMBERS, is_long=True),
    Program("wlangenpmkocl", "hcxkeys",
            ["wlangenpmkocl", "-e", "net", "-p", "password123"]),
    Program("gegl gaussian-blur", "gegl",
            ["gegl", "-o", "out.png", "--", "checkerboard", "crop", "width=64",
             "height=64", "gaussian-blur", "std-dev-x=2", "invert"],
            environment={"GEGL_USE_OPENCL": "cpu"},
            numbers=(r"\(gegl:\d+\): ", r"\d\d:\d\d:\d\d\.\d+")),
    Program("ufo-launch blur", "libufo-bin",
            ["ufo-launch", "-q", "dummy-data", "width=64", "height=64",
             "number=2", "init=3", "!", "blur", "size=5", "!", "write",
             "filename=out.raw"],
            environment={"UFO_DEVICE_TYPE": "cpu"},
            numbers=(r"Finished in .*",)),
    Program("ufo-launch fft", "libufo-bin",
            ["ufo-launch", "-q", "dummy-data", "width=64", "height=64",
             "number=2", "init=3", "!", "fft", "!", "ifft", "!", "write",
             "filename=out.raw"],
            environment={"UFO_DEVICE_TYPE": "cpu"},
            numbers=(r"Finished in .*",)),
    Program("StarPU vector_scal", "starpu-examples",
            ["/usr/lib/x86_64-linux-gnu/starpu/examples/vector_scal"],
            environment={"STARPU_NCPU": "0", "STARPU_OPENCL_ON_CPUS": "1",
                         "STARPU_SILENT": "1"}),
    Program("Erlang, its cl_compile", "erlang-cl",
            ["erl", "-noshell", "-eval",
             "{ok,_} = cl_compile:file(\"/usr/share/doc/erlang-cl/examples/"
             "mul4x4.cl\",cpu), halt()."],
            setup=compiled_erlang, fails_natively=True,
            numbers=(r"\{(\w+_t),\d+,", r"#Ref<[\d.]+>")),
    Program("Erlang, compile and link", "erlang-cl",
            ["erl", "-noshell", "-eval",
             "R = cl_compile:compile_12(clu:setup(cpu),prog1),"
             "io:format(\"~p~n\",[R]), halt()."],
            setup=compiled_erlang,
            numbers=(r"\{(\w+_t),\d+,", r"#Ref<[\d.]+>")),
    Program("OpenMM", "python3-simtk", python("openmm_gas.py")),
]
