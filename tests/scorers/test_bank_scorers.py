"""knn and nnguide against pytorch-ood; the random sample beneath nnguide and evm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_ood import detector
from scipy import stats
from scipy.special import logsumexp

from ghost_ray import scorers
from ghost_ray.scorers._bank import Bank, merge_topk
from ghost_ray.scorers._sample import RowSample, hash_rank


def linear(head) -> torch.nn.Linear:
    layer = torch.nn.Linear(head.weight.shape[1], head.weight.shape[0])
    layer.load_state_dict({"weight": torch.from_numpy(head.weight), "bias": torch.from_numpy(head.bias)})
    return layer


@pytest.mark.parametrize("k", [1, 7, 50])
def test_knn_equals_pytorch_ood(k, network):
    theirs = detector.KNN(None, k=k).fit_features(
        torch.from_numpy(network.train.embedding), torch.from_numpy(network.train.label)
    )
    expected = -theirs.predict_features(torch.from_numpy(network.unknown.embedding)).numpy()
    scorer = scorers.create("knn", k=k).fit(lambda: [network.train])
    assert scorer.score(network.unknown) == pytest.approx(expected, abs=1e-5)


def test_knn_of_a_zero_embedding_and_of_a_training_sample(network, batch_of):
    scorer = scorers.create("knn", k=1).fit(lambda: [network.train])
    rows = np.stack([np.zeros(12), 3 * network.train.embedding[5]])
    scores = scorer.score(batch_of(network.head, rows, [-1, -1]))
    assert scores[0] == -1
    assert scores[1] == pytest.approx(0, abs=1e-6)


def test_distances_in_a_tight_cluster_keep_their_digits():
    """‖a‖² − 2⟨a,b⟩ + ‖b‖² in float32 has none left where neighbours are a millionth apart."""
    rng = np.random.default_rng(0)
    bank = (1 + 1e-6 * rng.normal(size=(12, 64))).astype(np.float32)
    found = Bank(bank, "l2").search(bank[:3], 5)
    every = np.sort(np.linalg.norm(bank[:3, None].astype(np.float64) - bank, axis=2), axis=1)
    assert found == pytest.approx(every[:, :5], rel=1e-12)


def test_knn_with_fewer_samples_than_k_takes_the_farthest(network):
    train = network.train.take(np.arange(4))
    few = scorers.create("knn", k=50).fit(lambda: [train]).score(network.known)
    assert few.tobytes() == scorers.create("knn", k=4).fit(lambda: [train]).score(network.known).tobytes()


def test_nnguide_equals_pytorch_ood_on_the_same_bank(network):
    theirs = detector.NNGuide(None, linear(network.head), k=10).fit_features(
        torch.from_numpy(network.train.embedding), torch.from_numpy(network.train.label)
    )
    expected = -theirs.predict_features(torch.from_numpy(network.unknown.embedding)).numpy()
    scorer = scorers.create("nnguide", k=10, fraction=1.0).fit(lambda: [network.train])
    assert scorer.score(network.unknown) == pytest.approx(expected, rel=1e-4)


def test_the_bank_of_nnguide_is_a_share_of_all_classes(network_of):
    """Rows in class order: their first 10 % would be half of one class."""
    big = network_of(per_class=400)
    train = big.train.take(np.argsort(big.train.label, kind="stable"))
    scorer = scorers.create("nnguide", k=5, fraction=0.1).fit(lambda: [train])
    assert len(scorer.bank_) == 200
    direction = scorer.bank_.rows / np.linalg.norm(scorer.bank_.rows, axis=1, keepdims=True)
    whole = train.embedding / np.linalg.norm(train.embedding, axis=1, keepdims=True)
    owner = train.label[(direction @ whole.T).argmax(1)]
    assert stats.chisquare(np.bincount(owner, minlength=5)).pvalue > 0.001
    assert "200 training samples" in scorer.notes()[0]


def by_formula(network, bank: np.ndarray, k: int) -> np.ndarray:
    """NNGuide of the unknown rows with some training rows as its bank."""
    g = {
        name: rows.embedding / np.linalg.norm(rows.embedding.astype(np.float64), axis=1, keepdims=True)
        for name, rows in (("train", network.train), ("unknown", network.unknown))
    }
    guided = g["train"][bank] * logsumexp(network.train.logits[bank].astype(np.float64), axis=1)[:, None]
    nearest = -np.sort(-(g["unknown"] @ guided.T), axis=1)[:, :k]
    return logsumexp(network.unknown.logits.astype(np.float64), axis=1) * nearest.mean(axis=1)


def test_nnguide_takes_all_of_few_samples_and_ten_neighbours_as_its_authors_do(network):
    """1 % of 300 are 3: with k=100 the score would be the same mean for every row's neighbours."""
    scorer = scorers.create("nnguide").fit(lambda: [network.train])
    assert scorer.score(network.unknown) == pytest.approx(by_formula(network, np.arange(300), 10), rel=1e-5)
    assert scorer.notes() == ["nnguide: bank of 300 training samples, all, k=10"]


def test_nnguide_draws_a_hundredth_of_many_samples(network_of):
    network = network_of(classes=2, dim=4, per_class=50_100, signed=True)
    parts = np.array_split(np.arange(len(network.train)), 7)
    scorer = scorers.create("nnguide").fit(lambda: [network.train.take(part) for part in parts])
    chosen = np.argsort(hash_rank(network.train.row_id, 0))[:1002]
    assert scorer.notes() == ["nnguide: bank of 1002 training samples, drawn with seed 0, k=100"]
    assert scorer.score(network.unknown) == pytest.approx(by_formula(network, chosen, 100), rel=1e-5)
    fewer = network.train.take(np.arange(99_999))
    assert scorers.create("nnguide").fit(lambda: [fewer]).notes() == [
        "nnguide: bank of 99999 training samples, all, k=10"
    ]


@pytest.mark.parametrize(
    ("options", "size", "k"),
    [
        ({"k": 20}, 300, 20),
        ({"fraction": 0.2}, 60, 10),
        ({"k": 5, "fraction": 0.02}, 6, 5),
        ({"fraction": 1.0}, 300, 10),
    ],
)
def test_nnguide_does_as_it_is_told(network, options, size, k):
    scorer = scorers.create("nnguide", **options).fit(lambda: [network.train])
    chosen = np.argsort(hash_rank(network.train.row_id, 0))[:size]
    assert scorer.score(network.unknown) == pytest.approx(by_formula(network, chosen, k), rel=1e-5)


@pytest.mark.parametrize("metric", ["l2", "inner"])
@pytest.mark.parametrize("rows", [3, 500])
def test_a_bank_finds_what_a_full_search_finds(metric, rows):
    rng = np.random.default_rng(3)
    bank, queries = (rng.normal(size=(n, 16)).astype(np.float32) for n in (rows, 40))
    bank[1] = bank[0]
    found = Bank(bank, metric).search(queries, 6)
    if metric == "l2":
        every = np.sort(np.linalg.norm(queries[:, None].astype(np.float64) - bank, axis=2), axis=1)
    else:
        every = -np.sort(-(queries.astype(np.float64) @ bank.T), axis=1)
    assert found[:, :rows] == pytest.approx(every[:, :6], rel=1e-13, abs=1e-13)
    assert np.isinf(found[:, rows:]).all()


def test_merged_neighbours_are_those_of_both_parts():
    a, b = np.array([[1.0, 4.0, np.inf]]), np.array([[2.0, 3.0, 9.0]])
    assert merge_topk(a, b).tolist() == [[1, 2, 3]]


def test_a_sample_is_uniform_and_independent_of_the_split():
    ids = np.random.default_rng(0).integers(0, 2**64, 5000, dtype=np.uint64)
    hits = np.zeros(5000)
    for seed in range(300):
        sample = RowSample("test", 100, seed=seed)
        sample.update(ids, np.arange(5000))
        (chosen,) = sample.finish()
        assert len(np.unique(chosen)) == 100
        hits[chosen] += 1
    assert stats.chisquare(hits.reshape(50, 100).sum(1)).pvalue > 0.001

    left, right = RowSample("test", 100, 0.05), RowSample("test", 100, 0.05)
    for part in np.array_split(np.random.default_rng(1).permutation(5000), 7):
        (left if part[0] % 2 else right).update(ids[part], part)
    left.merge(right)
    whole = RowSample("test", 100, 0.05)
    whole.update(ids, np.arange(5000))
    assert np.array_equal(left.finish()[0], whole.finish()[0])
    assert len(whole.finish()[0]) == 250


def test_ranks_of_consecutive_ids_are_spread_evenly():
    ranks = hash_rank(np.arange(100_000, dtype=np.uint64), seed=0).astype(np.float64) / 2.0**64
    assert stats.kstest(ranks, "uniform").pvalue > 0.001
    assert not np.array_equal(hash_rank(np.arange(5, dtype=np.uint64), 0), hash_rank(np.arange(5, dtype=np.uint64), 1))
