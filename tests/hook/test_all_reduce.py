"""The sums that `restrain gpu-check` takes over all GPUs by NCCL, here over three processes by gloo."""

import pytest

pytest.importorskip("openrlhf", reason="needs the training stack: make install")

import torch
from torch import distributed

from restrain_openrlhf.commands.gpu_check.command import judge_sums
from restrain_openrlhf.hook.launch.all_reduce import REPEATS, all_reduce

RANKS = 3


def process(rank, port, broken, folder):
    """A rank's process; that of `broken` gets one wrong element."""
    own = distributed.all_reduce

    def sums(values):
        own(values)
        values[7] += rank == broken

    distributed.all_reduce = sums
    wrong, seconds = all_reduce("gloo", "127.0.0.1", port, rank, RANKS, "cpu", elements=2500)
    (folder / str(rank)).write_text(f"{wrong} {seconds > 0}")


@pytest.mark.parametrize(("broken", "expected"), [(None, [0, 0, 0]), (1, [0, REPEATS, 0])])
def test_each_rank_has_the_right_sum_and_a_wrong_one_is_seen_where_it_is(broken, expected, tmp_path):
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(process, (store.port, broken, tmp_path), RANKS)
    assert [(tmp_path / str(rank)).read_text() for rank in range(RANKS)] == [f"{wrong} True" for wrong in expected]


@pytest.mark.parametrize(
    ("needed", "gpus", "wrong", "verdict"), [(16, 16, 0, "pass"), (16, 16, 1, "fail"), (16, 8, 0, "fail")]
)
def test_a_wrong_sum_and_a_missing_gpu_fail(needed, gpus, wrong, verdict):
    assert judge_sums(needed, gpus, nodes=2, wrong=wrong, gb_per_second=40.0).verdict == verdict
