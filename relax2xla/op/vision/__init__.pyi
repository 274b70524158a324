# Written by python -m relax2xla.op --stubs.
"""Operators of object detection: ``relax.vision.*``."""

from relax2xla.op.vision.nms import all_class_non_max_suppression as all_class_non_max_suppression
from relax2xla.op.vision.nms import get_valid_counts as get_valid_counts
from relax2xla.op.vision.nms import non_max_suppression as non_max_suppression
from relax2xla.op.vision.roi import multibox_transform_loc as multibox_transform_loc
from relax2xla.op.vision.roi import roi_align as roi_align
from relax2xla.op.vision.roi import roi_pool as roi_pool
