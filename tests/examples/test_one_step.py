"""The step on one screen: its table, and its gradient against the paper's whole loss, label by label."""

import math
import runpy
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: make install")

import torch

from restrain_openrlhf.method.papers_loss import PapersLoss
from tests.conftest import ROOT

SCRIPT = ROOT / "examples" / "one_step.py"
CLASSES = [0] * 7 + [1] * 4 + [2] * 2 + [3, 4, None]


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(SCRIPT))


def test_it_prints_the_groups_table():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True)
    first, header, majority, *others = done.stdout.splitlines()
    assert first.startswith("u_x 0.682, penalised: 0%, |gradient| 0.0")
    assert header.split() == ["answer", "votes", "weight", "A+", "A-"]
    assert majority.split() == ["12", "7", "0.375", "+0.281", "-0.167"]
    assert [line.split()[:2] for line in others] == [["14", "4"], ["21", "2"], ["6", "1"], ["8", "1"]]


@pytest.mark.parametrize("shown", ["the shown responses", "low consensus"])
def test_its_gradient_is_that_of_the_papers_whole_loss(example, shown):
    low = shown == "low consensus"
    responses = [rf"\boxed{{{place // 2}}}" for place in range(16)] if low else example["RESPONSES"]
    labels = [place // 2 for place in range(16)] if low else CLASSES
    group, (policy, tokens, old, base, mask), gradient = example["step"](responses)
    u_x = math.exp(-((9 / 16 - 1) ** 2) / (2 * 0.5**2))
    paper = PapersLoss([labels], [u_x], example["BETA"], example["CLIP"], kappa=3)

    def of(loss):
        (found,) = torch.autograd.grad(loss.loss(example["log_probs"](policy, tokens), old, base, mask), policy)
        return found

    assert group.penalized == low
    assert (group.votes.classes, group.prompt_weight) == (tuple(labels), pytest.approx(u_x))
    assert torch.allclose(gradient, of(paper), rtol=1e-9, atol=1e-14)
    if not low:
        wrong = PapersLoss([labels], [u_x], example["BETA"], example["CLIP"], kappa=3, net_advantage=True)
        assert (of(wrong) - gradient).norm() > 0.05 * gradient.norm()
