"""Accuracy of sampled answers against gold: the benchmarks, the one grader, and the numbers made of its grades."""
