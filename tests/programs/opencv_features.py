# SPDX-License-Identifier: MIT
"""More of OpenCV's transparent OpenCL: colours, edges, features, matching,
optical flow, matrix products.  Most of its kernels are made for one pair of
element types by -D, so there are many small programs."""
import cv2
import numpy

cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL(), "OpenCV does not use OpenCL"

rows, columns = numpy.mgrid[0:240, 0:320]
image = numpy.dstack([rows % 256, columns % 256, (rows * columns) % 256])
image = numpy.ascontiguousarray(image.astype(numpy.uint8))
colours = cv2.UMat(image)
grey = cv2.cvtColor(colours, cv2.COLOR_BGR2GRAY)
results = [
    cv2.cvtColor(colours, cv2.COLOR_BGR2HSV),
    cv2.medianBlur(grey, 5),
    cv2.bilateralFilter(grey, 5, 30, 30),
    cv2.morphologyEx(grey, cv2.MORPH_OPEN, numpy.ones((3, 3), numpy.uint8)),
    cv2.Canny(grey, 50, 150),
    cv2.Laplacian(grey, cv2.CV_16S),
    cv2.pyrDown(grey),
    cv2.warpAffine(grey, numpy.float32([[1, .1, 3], [0, 1, 5]]), (320, 240)),
    cv2.equalizeHist(grey),
    cv2.matchTemplate(grey, cv2.UMat(grey, [20, 60], [20, 60]),
                      cv2.TM_CCORR_NORMED),
    cv2.gemm(cv2.UMat(numpy.eye(64, dtype=numpy.float32)),
             cv2.UMat(numpy.ones((64, 64), numpy.float32)), 1, None, 0),
]
points, _ = cv2.ORB_create(100).detectAndCompute(grey, None)
for result in results:
    array = result.get()
    print(array.shape, array.dtype, f"{float(array.astype(float).sum()):.0f}")
print(len(points), "points")
