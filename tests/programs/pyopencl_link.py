# SPDX-License-Identifier: MIT
"""Two programs compiled apart, one with a header program, and linked."""
import numpy
import pyopencl
import pyopencl.array

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
host = numpy.arange(1024, dtype=numpy.int32)
x = pyopencl.array.to_device(queue, host)

header = pyopencl.Program(context, "int twice(int x);\n")
one = pyopencl.Program(context, "int twice(int x) { return 2 * x; }\n")
two = pyopencl.Program(context, """
#include "twice.h"
kernel void change(global int *x)
{
	x[get_global_id(0)] = twice(x[get_global_id(0)]);
}
""")
one.compile()
two.compile(headers=[("twice.h", header)])
program = pyopencl.link_program(context, [one, two])
program.change(queue, host.shape, None, x.data)
assert (x.get() == host * 2).all()
print("ok")
