"""The accuracy of sampled answers against gold: evaluating benchmarks, grading, and what is computed from grades."""
