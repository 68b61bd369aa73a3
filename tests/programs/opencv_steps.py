# SPDX-License-Identifier: MIT
"""Steps of OpenCV's transparent OpenCL, one after another on one image:
opencv_steps.py TYPE STEP...  TYPE is 8 or 32, the bits of an element."""
import sys

import cv2
import numpy

ROWS, COLUMNS = 120, 160
KERNEL = numpy.ones((3, 3), numpy.uint8)
TURN = numpy.float32([[1, .1, 3], [0, 1, 5]])
TILT = numpy.float32([[1, .1, 3], [0, 1, 5], [0, .001, 1]])


def grey(image):
    return cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)


STEPS = {
    "grey": grey,
    "hsv": lambda m: cv2.cvtColor(m, cv2.COLOR_BGR2HSV),
    "lab": lambda m: cv2.cvtColor(m, cv2.COLOR_BGR2Lab),
    "luv": lambda m: cv2.cvtColor(m, cv2.COLOR_BGR2Luv),
    "yuv": lambda m: cv2.cvtColor(m, cv2.COLOR_BGR2YUV),
    "ycrcb": lambda m: cv2.cvtColor(m, cv2.COLOR_BGR2YCrCb),
    "xyz": lambda m: cv2.cvtColor(m, cv2.COLOR_BGR2XYZ),
    "blur": lambda m: cv2.GaussianBlur(m, (5, 5), 1.5),
    "wide-blur": lambda m: cv2.GaussianBlur(m, (11, 11), 4),
    "box": lambda m: cv2.blur(m, (5, 5)),
    "median": lambda m: cv2.medianBlur(m, 5),
    "bilateral": lambda m: cv2.bilateralFilter(grey(m), 5, 30, 30),
    "sobel": lambda m: cv2.Sobel(m, cv2.CV_32F, 1, 0),
    "scharr": lambda m: cv2.Scharr(m, cv2.CV_32F, 0, 1),
    "laplace": lambda m: cv2.Laplacian(m, cv2.CV_32F),
    "sharpen": lambda m: cv2.filter2D(m, -1, numpy.float32(
        [[0, -1, 0], [-1, 5, -1], [0, -1, 0]])),
    "erode": lambda m: cv2.erode(m, KERNEL),
    "dilate": lambda m: cv2.dilate(m, KERNEL),
    "open": lambda m: cv2.morphologyEx(m, cv2.MORPH_OPEN, KERNEL),
    "gradient": lambda m: cv2.morphologyEx(m, cv2.MORPH_GRADIENT, KERNEL),
    "half": lambda m: cv2.resize(m, (80, 60),
                                 interpolation=cv2.INTER_LINEAR),
    "area": lambda m: cv2.resize(m, (80, 60), interpolation=cv2.INTER_AREA),
    "nearest": lambda m: cv2.resize(m, (200, 90),
                                    interpolation=cv2.INTER_NEAREST),
    "cubic": lambda m: cv2.resize(m, (200, 90),
                                  interpolation=cv2.INTER_CUBIC),
    "pyramid": lambda m: cv2.pyrUp(cv2.pyrDown(m)),
    "turn": lambda m: cv2.warpAffine(m, TURN, (COLUMNS, ROWS)),
    "tilt": lambda m: cv2.warpPerspective(m, TILT, (COLUMNS, ROWS)),
    "flip": lambda m: cv2.flip(m, 1),
    "transpose": cv2.transpose,
    "threshold": lambda m: cv2.threshold(m, 100, 200, cv2.THRESH_BINARY)[1],
    "truncate": lambda m: cv2.threshold(m, 100, 200, cv2.THRESH_TRUNC)[1],
    "adaptive": lambda m: cv2.adaptiveThreshold(
        grey(m), 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, 5, 2),
    "canny": lambda m: cv2.Canny(grey(m), 50, 150),
    "equalize": lambda m: cv2.equalizeHist(grey(m)),
    "clahe": lambda m: cv2.createCLAHE(2.0, (4, 4)).apply(grey(m)),
    "corners": lambda m: cv2.goodFeaturesToTrack(grey(m), 50, .01, 5),
    "match": lambda m: cv2.matchTemplate(
        grey(m), cv2.UMat(grey(m), [20, 60], [20, 60]), cv2.TM_CCORR_NORMED),
    "integral": lambda m: cv2.integral(grey(m)),
    "add": lambda m: cv2.add(m, m),
    "subtract": lambda m: cv2.subtract(m, cv2.flip(m, 0)),
    "multiply": lambda m: cv2.multiply(m, m),
    "divide": lambda m: cv2.divide(m, m),
    "difference": lambda m: cv2.absdiff(m, cv2.flip(m, 0)),
    "weighted": lambda m: cv2.addWeighted(m, .5, cv2.flip(m, 1), .5, 0),
    "least": lambda m: cv2.min(m, cv2.flip(m, 1)),
    "not": cv2.bitwise_not,
    "and": lambda m: cv2.bitwise_and(m, cv2.flip(m, 1)),
    "range": lambda m: cv2.inRange(m, (10, 10, 10), (200, 200, 200)),
    "channels": lambda m: cv2.merge(cv2.split(m)),
    "norm": lambda m: cv2.normalize(m, None, 0, 255, cv2.NORM_MINMAX),
    "lookup": lambda m: cv2.LUT(m, numpy.arange(256, dtype=numpy.uint8)),
    "features": lambda m: cv2.ORB_create(50).detectAndCompute(grey(m), None),
    "flow": lambda m: cv2.calcOpticalFlowFarneback(
        grey(m), grey(cv2.flip(m, 1)), None, .5, 2, 9, 2, 5, 1.1, 0),
    "product": lambda m: cv2.gemm(
        cv2.UMat(numpy.eye(64, dtype=numpy.float32)),
        cv2.UMat(numpy.ones((64, 64), numpy.float32)), 1, None, 0),
    "spectrum": lambda m: cv2.dft(
        cv2.UMat(numpy.ones((64, 64), numpy.float32))),
    "root": lambda m: cv2.sqrt(cv2.UMat(numpy.ones((64, 64),
                                                   numpy.float32))),
    "polar": lambda m: cv2.cartToPolar(
        cv2.UMat(numpy.ones((64, 64), numpy.float32)),
        cv2.UMat(numpy.ones((64, 64), numpy.float32))),
}


def main():
    element = {"8": numpy.uint8, "32": numpy.float32}[sys.argv[1]]
    cv2.ocl.setUseOpenCL(True)
    assert cv2.ocl.useOpenCL(), "OpenCV does not use OpenCL"
    rows, columns = numpy.mgrid[0:ROWS, 0:COLUMNS]
    image = numpy.dstack([rows % 256, columns % 256, (rows * columns) % 256])
    for name in sys.argv[2:]:
        STEPS[name](cv2.UMat(numpy.ascontiguousarray(image.astype(element))))
    cv2.ocl.finish()
    print("ok")


main()
