# SPDX-License-Identifier: MIT
"""Steps of pyopencl on arrays of one type, whose kernels it generates:
pyopencl_steps.py TYPE STEP...  "all" is every step."""
import sys

import numpy
import pyopencl
import pyopencl.array
import pyopencl.clmath
import pyopencl.clrandom
from pyopencl.algorithm import RadixSort, copy_if
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import InclusiveScanKernel
from pyopencl.tools import dtype_to_ctype

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)


def expression(x):
    kind = dtype_to_ctype(x.dtype)
    twice = ElementwiseKernel(context, f"{kind} *x, {kind} *y", "y[i] = x[i]",
                              preamble="#define PYOPENCL_DEFINE_CDOUBLE"
                              if x.dtype.kind == "c" else "")
    twice(x, pyopencl.array.empty_like(x))
    (x + x * 2 - x).get()


def total(x):
    pyopencl.array.sum(x).get()


def extrema(x):
    pyopencl.array.max(x).get()
    pyopencl.array.min(x).get()
    ReductionKernel(context, x.dtype, neutral="0", reduce_expr="a+b",
                    map_expr="x[i]*x[i]",
                    arguments=f"__global {dtype_to_ctype(x.dtype)} *x")(x)


def scan(x):
    InclusiveScanKernel(context, x.dtype, "a + b", neutral="0")(x.copy())


def random_numbers(x):
    if x.dtype.kind == "f":
        pyopencl.clrandom.rand(queue, 256, x.dtype)
        pyopencl.clmath.sin(x).get()
        pyopencl.clmath.exp(x).get()


def sort(x):
    if x.dtype == numpy.int32:
        RadixSort(context, "int *x", key_expr="x[i]",
                  sort_arg_names=["x"])(x, key_bits=16)


def product(x):
    pyopencl.array.dot(x, x).get()
    pyopencl.array.vdot(x, x).get()


def where(x):
    copy_if(x, "ary[i] > 7")


STEPS = {"expression": expression, "sum": total, "extrema": extrema,
         "scan": scan, "random": random_numbers, "sort": sort,
         "product": product, "filter": where}

array = pyopencl.array.to_device(
    queue, numpy.arange(1024).astype(numpy.dtype(sys.argv[1])))
for name in sys.argv[2:]:
    for step in STEPS.values() if name == "all" else [STEPS[name]]:
        step(array)
queue.finish()
print("ok")
