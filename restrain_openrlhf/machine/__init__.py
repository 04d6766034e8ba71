"""The machine at hand: what CUDA, a CPU and nvidia-smi say, and the processes that commands start on it."""
