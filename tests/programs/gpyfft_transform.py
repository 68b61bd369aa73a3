# SPDX-License-Identifier: MIT
"""clFFT by way of gpyfft: a transform forth and back."""
import numpy
import pyopencl
import pyopencl.array
from gpyfft.fft import FFT

context = pyopencl.create_some_context(interactive=False)
queue = pyopencl.CommandQueue(context)
host = numpy.arange(256, dtype=numpy.complex64).reshape(16, 16)
data = pyopencl.array.to_device(queue, host)
transform = FFT(context, queue, data, axes=(1, 0))
for event in transform.enqueue():
    event.wait()
assert numpy.allclose(data.get(), numpy.fft.fft2(host), rtol=1e-3, atol=1)
for event in transform.enqueue(forward=False):
    event.wait()
assert numpy.allclose(data.get(), host, rtol=1e-3, atol=1)
print("ok")
