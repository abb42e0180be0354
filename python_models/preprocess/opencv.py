"""OpenCV, set up before it is imported: other modules take it from here."""

import os

os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")  # Triton runs several stubs: one thread each, or they thrash
os.environ.setdefault("OPENCV_LOG_LEVEL", "FATAL")  # libjpeg and libpng warn on stderr all the same
import cv2 as cv2
