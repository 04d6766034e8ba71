"""What the Ray cluster that RAY_ADDRESS names has."""

import ray


def cluster_gpus() -> float:
    """GPUs of all its nodes. Joins the cluster and leaves it again."""
    ray.init(log_to_driver=False)
    try:
        return float(ray.cluster_resources().get("GPU", 0))
    finally:
        ray.shutdown()
