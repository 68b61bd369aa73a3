# SPDX-License-Identifier: MIT
"""A program with headers in folders named by -I, one of them with a blank."""
import numpy
import pyopencl
import pyopencl.array

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
host = numpy.arange(1024, dtype=numpy.int32)
x = pyopencl.array.to_device(queue, host)
program = pyopencl.Program(context, """
#include "scale.h"
#include <detail/factor.h>
kernel void change(global int *x)
{
	x[get_global_id(0)] = SCALE(x[get_global_id(0)]) + FACTOR;
}
""").build(options=["-I", "include"])
program.change(queue, host.shape, None, x.data)
assert (x.get() == host * 3 + 3).all()
print("ok")
