"""The pictures, a file each. This list is the only one: the API, the command line, its page in the documents and tests go by it."""

from __future__ import annotations

from .attention_steps import attention_steps as attention_steps
from .batch_path import batch_path as batch_path
from .block_profile import block_profile as block_profile
from .collectives import collectives as collectives
from .comparison import comparison as comparison
from .compute_ceilings import compute_ceilings as compute_ceilings
from .decode_heatmap import decode_heatmap as decode_heatmap
from .decode_latency import decode_latency as decode_latency
from .decode_over_batch import decode_over_batch as decode_over_batch
from .empirical import empirical as empirical
from .hierarchy import hierarchy as hierarchy
from .intensity_over_batch import intensity_over_batch as intensity_over_batch
from .intensity_over_seq import intensity_over_seq as intensity_over_seq
from .kernel_placement import kernel_placement as kernel_placement
from .latency import latency as latency
from .machines import machines as machines
from .operations import operations as operations
from .predicted_measured import predicted_measured as predicted_measured
from .ridge_points import ridge_points as ridge_points
from .roofline import roofline as roofline
from .size_curve import size_curve as size_curve
from .sweep_lines import sweep_lines as sweep_lines
from .sweep_map import sweep_map as sweep_map
from .workloads import workloads as workloads
