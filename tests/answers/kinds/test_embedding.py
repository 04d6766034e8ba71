"""The kind `embedding`: clusters against a naive count, vectors against padded batches, and a model of our own."""

import builtins
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restrain_openrlhf.answers.kinds.embedding import Embedding, clusters, encoder_of, vector_of
from restrain_openrlhf.errors import ConfigError, GraderError

ROW = {"problem": "Why is the sky blue?"}
WORDS = "light scatters short waves more blue the sky air sun because of ? query :".split()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A BERT with random weights and a vocabulary of WORDS, as sentence-transformers lays a model out."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-bert")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    spread = {"initializer_range": 0.5}
    config = transformers.BertConfig(vocab_size=5 + len(WORDS), max_position_embeddings=64, **sizes, **spread)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    say(folder, "Transformer", "Pooling", "Normalize", mean_tokens=True, cls_token=False)
    return folder


def say(folder, *modules, **modes):
    (folder / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.models.{each}"} for each in modules])
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    said = {"word_embedding_dimension": 32, **{f"pooling_mode_{name}": chosen for name, chosen in modes.items()}}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))


@pytest.fixture(autouse=True)
def nothing_loaded():
    vector_of.cache_clear()
    encoder_of.cache_clear()


def kind_of(model, **more):
    return Embedding(model=str(model), **{"threshold": 0.9, **more})


# --- clusters


def naive(vectors, threshold):
    """By the definition: at each step, all pairs of members of all pairs of clusters."""
    groups = [[place] for place in range(len(vectors))]
    while True:
        pairs = [
            (min(round(float(vectors[a] @ vectors[b]), 6) for a in first for b in second), -i, -j)
            for i, first in enumerate(groups)
            for j, second in enumerate(groups)
            if i < j
        ]
        if not pairs or max(pairs)[0] < threshold:
            return {frozenset(group) for group in groups}
        _, i, j = max(pairs)
        groups[-i] += groups.pop(-j)


def as_groups(labels):
    return {frozenset(place for place, other in enumerate(labels) if other == label) for label in labels}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6), st.floats(-0.5, 1))
def test_clusters_are_those_of_the_definition(n, seed, threshold):
    vectors = np.random.default_rng(seed).normal(size=(n, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert as_groups(clusters(vectors, threshold)) == naive(vectors, threshold)


@pytest.mark.parametrize(("threshold", "groups"), [(0.2, [{0, 1, 2}]), (0.5, [{0}, {1, 2}]), (0.9, [{0}, {1}, {2}])])
def test_all_texts_of_a_cluster_are_similar(threshold, groups):
    """At 0, 40 and 75 degrees: the cosines are .766, .819 and .259."""
    turns = np.radians([0, 40, 75])
    vectors = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    assert as_groups(clusters(vectors, threshold)) == set(map(frozenset, groups))


# --- vectors

TEXTS = ["blue", "light scatters more", "the sky", "short waves of light scatter ?", "more more more the the"]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_a_padded_batch(model, pooling):
    import torch
    from transformers import AutoTokenizer, BertModel

    say(model, "Transformer", "Pooling", mean_tokens=pooling == "mean", cls_token=pooling == "cls")
    found = np.stack([vector_of(text, str(model), None) for text in TEXTS])
    inputs = AutoTokenizer.from_pretrained(model)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = BertModel.from_pretrained(model).eval()(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    pooled = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(pooled).numpy()
    say(model, "Transformer", "Pooling", "Normalize", mean_tokens=True, cls_token=False)
    assert found == pytest.approx(expected, abs=1e-5)
    assert (np.abs(found[0] - found[1:]).max(axis=1) > 0.01).all()


# --- the kind


def test_texts_that_the_model_cannot_tell_apart_are_one_class(model):
    """Words that the vocabulary lacks are one token, and so are capitals and small letters."""
    kind = kind_of(model, threshold=0.999)
    assert kind.classes(["dog", "The Sky", None, "cat", "the sky", "blue light"], ROW) == [0, 1, None, 0, 1, 2]
    assert kind_of(model, threshold=-0.99).classes(["dog", "sky"], ROW) == [0, 0]
    assert kind.is_right("THE SKY", "the sky", ROW)
    assert not kind.is_right("blue light", "the sky", ROW)
    assert not kind.is_right(None, "the sky", ROW)
    assert kind_of("/no/such/model").classes([None, "a", "a"], ROW) == [None, 0, 0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=8), st.sampled_from(TEXTS)), max_size=8), st.randoms())
def test_the_order_of_the_rollouts_changes_numbers_alone(model, answers, rng):
    kind = kind_of(model)
    found = kind.classes(answers, ROW)
    assert [each is None for each in found] == [answer is None for answer in answers]
    places = list(range(len(answers)))
    rng.shuffle(places)
    moved = kind.classes([answers[place] for place in places], ROW)
    assert len(set(zip(moved, (found[place] for place in places), strict=True))) == len(set(found))


def test_hostile_texts_have_vectors(model):
    assert kind_of(model).classes(["\ud800", "\0", "x" * 1_000_000, "sky " * 200_000], ROW)[0] == 0
    assert kind_of(model).extract("x" * 1_000_000, ROW) is None


def test_a_prefix_goes_before_every_text(model):
    one, other = (vector_of(text, str(model), None) for text in ("query: sky", "query: sun"))
    similar = round(float(one @ other), 6)
    for threshold, expected in ((similar, [0, 0]), (similar + 2e-6, [0, 1])):
        assert kind_of(model, prefix="query: ", threshold=threshold).classes(["sky", "sun"], ROW) == expected


def test_without_its_libraries_the_extra_is_named(model, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "transformers":
            raise ImportError("No module named 'transformers'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"restrain-openrlhf\[embedding\]"):
        kind_of(model).classes(["a", "b"], ROW)


@pytest.mark.parametrize(
    ("modules", "modes"),
    [(["Transformer", "Pooling", "Dense"], {"mean_tokens": True}), (["Transformer", "Pooling"], {"max_tokens": True})],
)
def test_a_model_that_is_made_otherwise_is_refused(model, modules, modes):
    say(model, *modules, **modes)
    with pytest.raises(ConfigError, match="is made of the modules Transformer"):
        kind_of(model).classes(["a", "b"], ROW)
    say(model, "Transformer", "Pooling", "Normalize", mean_tokens=True, cls_token=False)


def test_a_model_without_directions_is_said(model, monkeypatch):
    monkeypatch.setattr(np.linalg, "norm", lambda *_: float("nan"))
    with pytest.raises(GraderError, match="is zero or not finite"):
        vector_of("sky", str(model), None)
