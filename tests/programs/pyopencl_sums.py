# SPDX-License-Identifier: MIT
"""What pyopencl generates by itself: elementwise, reduction and scan kernels,
random numbers, sorting; and one kernel of the script's own."""
import numpy
import pyopencl
import pyopencl.array
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel
from pyopencl.scan import InclusiveScanKernel

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
host = numpy.arange(4096, dtype=numpy.int32)
x = pyopencl.array.to_device(queue, host)

twice = ElementwiseKernel(context, "int *x, int *out", "out[i] = 2 * x[i]")
out = pyopencl.array.empty_like(x)
twice(x, out)
assert (out.get() == 2 * host).all()

total = ReductionKernel(context, numpy.int32, neutral="0",
                        reduce_expr="a + b", map_expr="x[i]",
                        arguments="__global int *x")
assert total(x).get() == host.sum()

scan = InclusiveScanKernel(context, numpy.int32, "a + b", neutral="0")
scan(out)
assert (out.get() == numpy.cumsum(2 * host)).all()

program = pyopencl.Program(context, """
kernel void add(global int *a, int b) { a[get_global_id(0)] += b; }
""").build(options=["-DUNUSED=1"])
program.add(queue, host.shape, None, x.data, numpy.int32(5))
assert (x.get() == host + 5).all()
print("ok", total(x).get())
