"""Operators of object detection: ``relax.vision.*``."""

from __future__ import annotations

from .nms import all_class_non_max_suppression as all_class_non_max_suppression
from .nms import get_valid_counts as get_valid_counts
from .nms import non_max_suppression as non_max_suppression
from .roi import multibox_transform_loc as multibox_transform_loc
from .roi import roi_align as roi_align
from .roi import roi_pool as roi_pool
