"""The parts of benchmarks/compare_cpu. What a rival's process imports needs nothing of roofline: `serving` and the sides."""
