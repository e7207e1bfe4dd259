"""Filtering of single-channel images: the operator convx::filter2d, its derivatives, and what uses it.

Users reach it by convx.functional (filter2d, separable_filter2d), convx.nn (Filter2d, GaussianBlur2d,
Sobel2d) and `python -m convx filter`.
"""
