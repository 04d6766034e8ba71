"""OpenRLHF flags that `restrain train` sets unless the configuration does, each with its reason."""

from restrain_openrlhf.config.yaml_file import RunConfig


def host_flags(config: RunConfig) -> dict[str, object]:
    """All of a run's flags: the defaults below, then the configuration's own."""
    run_dir = config.run_dir
    defaults: dict[str, object] = {
        # The hook replaces the estimator; this is the one it accepts.
        "algo.advantage.estimator": "group_norm",
        # KL as a loss term (eq. 7), weighed as in the paper's D.2, with the estimator of GRPO (the paper names none).
        "algo.kl.use_loss": True,
        "algo.kl.estimator": "k3",
        "algo.kl.init_coef": 0.001,
        # 0 adds nothing to the loss and makes the host log the policy's entropy.
        "actor.entropy_coef": 0,
        # The best checkpoint by evaluation would be chosen by gold.
        "ckpt.best_metric_key": "none",
        # The host never saves checkpoints unless told to, and a killed run could not go on.
        "ckpt.save_steps": 10,
        "ckpt.load_enable": True,
        "ckpt.path": str(run_dir / "checkpoints"),
        "ckpt.output_dir": str(run_dir / "model"),
        "logger.tensorboard_dir": str(run_dir / "tensorboard"),
        "logger.wandb.run_name": run_dir.name,
        "data.input_key": "problem",
    }
    return {**defaults, **config.openrlhf}
