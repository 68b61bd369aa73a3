# SPDX-License-Identifier: MIT
"""The sessions of work that tools/record records: programs of Debian 12,
unchanged, with what a person might have them do for some weeks.

A session has tasks, which are command lines, and an order of runs.  The order
is drawn by chance, always the same: every day has a project of a few tasks,
favourites more often than others, which are run again and again; now and then
comes something else, and at the end of a week, in some sessions, everything
once."""
import dataclasses
import os
import random

from program_list import FILES, PYTHON, ffmpeg


@dataclasses.dataclass
class Session:
    name: str
    package: str
    tasks: list			# command lines
    environment: dict = dataclasses.field(default_factory=dict)
    days: int = 12
    runs: int = 10		# of a day
    project: int = 4		# tasks of it
    week: int = 0		# days, after which all is run once; 0: never
    statuses: tuple = (0,)

    def order(self):
        """Numbers of tasks, one for each run."""
        chance = random.Random(self.name)
        ranks = list(range(len(self.tasks)))
        chance.shuffle(ranks)
        weights = [1 / (1 + ranks[i]) for i in range(len(ranks))]
        for day in range(self.days):
            project = chance.choices(range(len(ranks)), weights,
                                     k=self.project)
            for _ in range(self.runs):
                yield (chance.choice(project) if chance.random() < .75 else
                       chance.randrange(len(ranks)))
            if self.week and (day + 1) % self.week == 0:
                yield from range(len(ranks))


# ---- OpenCV -------------------------------------------------------------------

PIPELINES = (
    "grey", "hsv range", "lab clahe", "luv", "yuv", "ycrcb", "xyz",
    "blur grey canny", "blur difference threshold", "wide-blur", "box",
    "median", "bilateral", "sobel", "scharr", "laplace", "sharpen",
    "erode dilate", "open gradient", "half", "area", "nearest", "cubic",
    "pyramid", "turn", "tilt", "flip transpose", "adaptive", "truncate",
    "equalize corners", "match", "integral", "add subtract", "multiply divide",
    "weighted least", "not and", "channels norm", "lookup", "features", "flow",
    "product spectrum", "root polar",
    "grey blur canny open corners match", "hsv range open half area",
    "half blur sharpen lab clahe tilt cubic", "flow features match pyramid",
)

def opencv():
    script = os.path.join(FILES, "opencv_steps.py")
    return [[PYTHON, script, "8", *one.split()] for one in PIPELINES]


# ---- ffmpeg -------------------------------------------------------------------

ONE = ("avgblur_opencl=5", "boxblur_opencl=3:1", "unsharp_opencl",
       "convolution_opencl='0 -1 0 -1 5 -1 0 -1 0'", "sobel_opencl",
       "prewitt_opencl", "roberts_opencl", "erosion_opencl", "dilation_opencl",
       "transpose_opencl", "nlmeans_opencl=s=2:p=3:r=5", "deshake_opencl",
       "pad_opencl=400:300", "avgblur_opencl=3,unsharp_opencl",
       "boxblur_opencl=2:1,sobel_opencl", "erosion_opencl,dilation_opencl",
       "nlmeans_opencl=s=2:p=3:r=5,unsharp_opencl", "transpose_opencl,"
       "avgblur_opencl=3,pad_opencl=400:400")


def clip(form):
    return f"testsrc2=s=160x120:r=5:d=0.2,format={form},hwupload"


def filters():
    for form in ("yuv420p", "rgba"):
        for graph in ONE:
            if form == "rgba" and ("deshake" in graph or "400:400" in graph):
                continue
            yield ffmpeg(f"{clip(form)},{graph},hwdownload,format={form}")
    yield ffmpeg(f"{clip('rgba')},colorkey_opencl=green,hwdownload,"
                 "format=rgba")
    for form in ("yuv420p", "rgba"):
        two = f"{clip(form)}[a];{clip(form)}[b];[a][b]"
        end = f",hwdownload,format={form}"
        yield ffmpeg(two + "overlay_opencl=20:20" + end)
        for kind in ("fade", "wipeleft", "slidedown"):
            yield ffmpeg(two + f"xfade_opencl={kind}:0.1:0.05" + end)


# ---- Others -------------------------------------------------------------------

SIZES = (16, 27, 32, 60, 64, 81, 100, 128, 200, 243, 256, 360, 480, 512, 729,
         1000, 1024, 1920, 2048, 4096)


def transforms():
    for size in SIZES:
        yield ["clFFT-client", "-x", str(size), "-p", "1"]
        if size % 3:
            yield ["clFFT-client", "-x", str(size), "--double", "-p", "1"]
        if size < 500:
            yield ["clFFT-client", "-x", str(size), "-y", str(size), "-p", "1"]
            yield ["clFFT-client", "-x", str(size), "--inv", "-o", "-p", "1"]


ROUTINES = ("xaxpy xdot xscal xcopy xswap xnrm2 xasum xamax xdotu xdotc xhad "
            "xomatcopy").split()


def linear_algebra():
    for routine in ROUTINES:
        yield [f"clblast_test_{routine}"]
    for size in (4096, 65536):
        yield ["clblast_tuner_xdot", "-n", str(size), "-runs", "1"]


def pyopencl_steps():
    script = os.path.join(FILES, "pyopencl_steps.py")
    for element in ("int32", "float32", "float64", "complex64"):
        for step in ("expression", "sum", "extrema", "scan", "random", "sort",
                     "product", "filter", "all"):
            if element != "complex64" or step in ("expression", "sum",
                                                  "product"):
                yield [PYTHON, script, element, step]


GEGL = (
    "gaussian-blur std-dev-x=2", "box-blur radius=3", "invert",
    "brightness-contrast contrast=1.5", "exposure exposure=1", "levels",
    "threshold", "edge-laplace", "edge-sobel",
    "bilateral-filter", "snn-mean", "c2g iterations=3 samples=3", "pixelize",
    "motion-blur-linear length=5", "noise-reduction", "color-temperature",
    "mono-mixer", "saturation scale=2", "vignette", "softglow", "emboss", "cartoon", "waves", "ripple", "high-pass",
    "unsharp-mask", "difference-of-gaussians", "color-to-alpha", "posterize",
    "alien-map", "median-blur radius=2", "video-degradation", "noise-hsv",
    "texturize-canvas", "red-eye-removal", "cubism", "opacity value=0.5", "add value=0.1", "multiply value=0.5",
    "subtract value=0.1", "divide value=2", "gamma value=2", "shadows-highlights",
    "stretch-contrast", "dropshadow", "mblur", "polar-coordinates",
)


def gegl():
    start = ["gegl", "-o", "out.png", "--", "checkerboard", "crop",
             "width=64", "height=64"]
    for one in GEGL:
        yield start + one.split()
    for a, b in zip(GEGL[::3], GEGL[1::3]):
        yield start + a.split() + b.split()


UFO = (
    "blur size=5", "fft ! ifft", "flip", "transpose", "gradient",
    "median-filter", "binarize threshold=0.5", "clip min=0 max=1", "bin size=2",
    "denoise", "power-spectrum", "swap-quadrants", "zeropad ! fft",
    "calculate expression=v+1", "remove-outliers", "fft ! filter ! ifft",
    "fft ! retrieve-phase ! ifft", "blur size=3 ! gradient",
    "flip ! transpose", "blur ! median-filter ! binarize threshold=0.1",
    "calculate expression=v*2", "calculate expression=sqrt(v)",
    "calculate expression=v*v+1 ! clip min=0 max=1",
)


def ufo():
    for graph in UFO:
        yield ["timeout", "20", "ufo-launch", "-q", "dummy-data", "width=64",
               "height=64", "number=2", "init=3", "!", *graph.split(), "!",
               "null"]


MODES = (("0", 3), ("0", 0), ("100", 3), ("1000", 3), ("1000", 0), ("1400", 0),
         ("900", 3), ("500", 0))
DIGESTS = {"0": 32, "100": 40, "1000": 32, "1400": 64, "900": 32}


def hashcat():
    for mode, attack in MODES:
        target = ("$1$38652870$DUjsu4TTlTsOe/xxZ05uf/" if mode == "500" else
                  "a" * DIGESTS[mode])
        guess = ("?d?d" if attack == 3 else os.path.join(FILES, "words.txt"))
        for more in ((), ("-O",)):
            yield ["hashcat", "--force", "--potfile-disable",
                   "--restore-disable", "--self-test-disable", "-n", "1", "-u",
                   "1", "-T", "1", *more, "-m", mode, "-a", str(attack),
                   target, guess]


SESSIONS = [
    Session("opencv", "python3-opencv", opencv(),
            {"OPENCV_OPENCL_DEVICE": ":CPU:",
             "OPENCV_OPENCL_CACHE_ENABLE": "0"}, days=8, runs=8, week=8),
    Session("ffmpeg", "ffmpeg", list(filters()), days=12, runs=8),
    Session("clfft", "clfft-client", list(transforms()), days=14, runs=8),
    Session("clblast", "clblast-tests", list(linear_algebra()), days=8,
            runs=6, project=3),
    Session("pyopencl", "python3-pyopencl", list(pyopencl_steps()),
            {"PYOPENCL_NO_CACHE": "1"}, days=10, runs=8),
    Session("gegl", "gegl", list(gegl()), {"GEGL_USE_OPENCL": "cpu"},
            days=14, runs=10),
    Session("ufo", "libufo-bin", list(ufo()), {"UFO_DEVICE_TYPE": "cpu"},
            days=12, runs=8),
    Session("hashcat", "hashcat", list(hashcat()), days=6, runs=6, project=3,
            statuses=(0, 1)),
]
