"""What the Ray cluster that RAY_ADDRESS names has."""


def cluster_gpus() -> float:
    """GPUs of all its nodes. Joins the cluster and leaves it again."""
    import ray  # noqa: PLC0415 - a study that starts Ray itself can be checked without it

    ray.init(log_to_driver=False)
    try:
        return float(ray.cluster_resources().get("GPU", 0))
    finally:
        ray.shutdown()
