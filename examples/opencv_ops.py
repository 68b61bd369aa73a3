#!/usr/bin/python3
# SPDX-License-Identifier: MIT
#
# Four operations of OpenCV's transparent OpenCL.  OpenCV leaves CPU devices
# alone unless OPENCV_OPENCL_DEVICE=:CPU: asks for one.
import cv2
import numpy

cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL(), "OpenCV does not use OpenCL"

image = numpy.arange(256 * 256, dtype=numpy.uint32).astype(numpy.uint8)
image = image.reshape(256, 256)
plain = cv2.UMat(image)

blurred = cv2.GaussianBlur(plain, (5, 5), 1.5)
added = cv2.add(plain, blurred)
small = cv2.resize(added, (128, 128), interpolation=cv2.INTER_LINEAR)
_, result = cv2.threshold(small, 127, 255, cv2.THRESH_BINARY)

cv2.ocl.setUseOpenCL(False)
_, expected = cv2.threshold(
    cv2.resize(cv2.add(image, cv2.GaussianBlur(image, (5, 5), 1.5)),
               (128, 128), interpolation=cv2.INTER_LINEAR),
    127, 255, cv2.THRESH_BINARY)
wrong = numpy.count_nonzero(result.get() != expected)
assert wrong < expected.size // 50, f"{wrong} pixels differ"
print("ok")
