"""What every registered scorer must do, whatever its formula."""

from __future__ import annotations

import pickle
import warnings
from functools import reduce
from typing import Any

import numpy as np
import pytest

from ghost_ray import scorers
from ghost_ray.rows import Rows
from ghost_ray.scorers import Kept, Scorer, ShardedScorer

ALL = scorers.names()
SMALL = {"evm": {"negatives": 150}, "nnguide": {"k": 5, "fraction": 0.2}, "knn": {"k": 7}}
ADAPTED = ["pytorch-ood:GEN", "pytorch-ood:SHE"]


def fitted(name: str, network, batches=None) -> Scorer:
    return scorers.create(name, **SMALL.get(name, {})).fit(batches or (lambda: [network.train]), network.head)


def send(value: Any) -> Any:
    """Carry a value to another process as Ray does: its arrays arrive read-only."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])


def distributed_fit(name: str, network, parts: list[Rows]) -> Scorer:
    """Fit as a cluster does: a state a worker, sent and merged; classes fitted apart."""
    scorer = scorers.create(name, **SMALL.get(name, {})).bind(*network.head.weight.shape, network.head)
    for pass_index in range(scorer.passes):
        states = [scorer.begin(pass_index) for _ in parts]
        for state, part in zip(states, parts, strict=True):
            state.update(part)
        states = [send(state) for state in states]
        first, *rest = states
        for state in rest:
            first.merge(state)
        scorer.end_pass(pass_index, first)
    if scorer.by_class:
        kept = [scorer.keep_usable(part) for part in parts]
        fits = {}
        for k in range(network.head.weight.shape[0]):
            rows = Kept.join([part.of_class(k) for part in kept])
            if len(rows.label):
                fits[k] = send(scorer.fit_class(k, rows))
        scorer.end_classes(fits)
    return send(scorer)


def split(batch: Rows, rng: np.random.Generator, parts: int) -> list[Rows]:
    """Rows dealt out at random; some parts may be empty."""
    owner = rng.integers(0, parts, len(batch))
    return [batch.take(rng.permutation(np.flatnonzero(owner == p))) for p in range(parts)]


@pytest.mark.parametrize("name", [*ALL, *ADAPTED])
@pytest.mark.parametrize("parts", [1, 3, 40])
def test_a_fit_does_not_depend_on_how_rows_were_split(name, parts, network):
    whole = fitted(name, network).score(network.known)
    again = distributed_fit(name, network, split(network.train, np.random.default_rng(parts), parts))
    # Classes whose Weibull or Pareto likelihood is solved by iteration carry rounding on.
    tolerance = 1e-4 if name == "ghost-gpd" else 1e-6 if name.startswith("pytorch-ood") else 1e-9
    assert again.score(network.known) == pytest.approx(whole, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("name", ALL)
def test_the_same_rows_give_the_same_bytes(name, network):
    parts = split(network.train, np.random.default_rng(7), 4)
    a, b = (distributed_fit(name, network, parts).score(network.unknown) for _ in range(2))
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ALL)
def test_a_score_does_not_depend_on_the_rest_of_its_batch(name, network):
    scorer = fitted(name, network)
    together = scorer.score(network.known)
    alone = np.concatenate([scorer.score(network.known.take(np.array([i]))) for i in range(len(network.known))])
    assert alone == pytest.approx(together, rel=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_nothing_known_before_the_rows_are_seen(name, network):
    """Unlabelled and broken training rows change nothing."""
    broken = network.unknown.embedding.copy()
    broken[::3] = np.nan
    broken[1::3] = np.inf
    logits = network.unknown.logits.copy()
    logits[::3] = np.nan
    unlabelled = Rows(network.unknown.label, network.unknown.pred, broken, logits, network.unknown.row_id)
    labelled = unlabelled.take(np.arange(len(unlabelled)) % 3 != 2)
    labelled = Rows(np.zeros_like(labelled.label), labelled.pred, labelled.embedding, labelled.logits, labelled.row_id)
    with_them = fitted(name, network, lambda: [network.train, unlabelled, labelled]).score(network.known)
    assert with_them.tobytes() == fitted(name, network).score(network.known).tobytes()


def adversarial(network, batch_of) -> Rows:
    dim = network.head.weight.shape[1]
    rows = np.zeros((14, dim), np.float32)
    rows[1] = 1e30
    rows[2] = -1e30
    rows[3] = 3e38
    rows[4, 0] = 3e38
    rows[5, ::2], rows[5, 1::2] = 3e38, -3e38
    rows[6] = 1e-40
    rows[7] = network.train.embedding[0]
    rows[8] = -5
    rows[9] = 7.0
    rows[10, 0] = -1.0
    rows[11] = np.linspace(-1, 1, dim)
    rows[12] = np.nan
    rows[13] = np.inf
    finite = batch_of(network.head, rows[:12], np.full(12, -1))
    logits = np.vstack([np.clip(finite.logits, -3e38, 3e38), np.full((2, finite.logits.shape[1]), np.nan)])
    logits[8] = -np.arange(1, logits.shape[1] + 1)
    pred = np.r_[finite.pred, 0, 0]
    pred[8] = 0
    return Rows(np.full(14, -1), pred, rows, logits.astype(np.float32), np.arange(14, dtype=np.uint64))


@pytest.mark.filterwarnings("ignore:scale is made for features")
@pytest.mark.parametrize("name", [*ALL, "pytorch-ood:GEN"])
@pytest.mark.parametrize("training", ["plain", "thin", "constant", "one-sample"])
def test_no_row_and_no_training_set_gives_nan(name, training, network, batch_of):
    """Classes without a correct sample, dimensions that never move, one sample a class."""
    train = network.train
    if training == "thin":
        train = train.take((train.label > 1) | ((train.label == 1) & ~train.correct))
    elif training == "constant":
        embedding = train.embedding.copy()
        embedding[:, :3] = 0.5
        embedding[train.label == 0] = embedding[train.label == 0][0]
        train = batch_of(network.head, embedding, train.label)
    elif training == "one-sample":
        train = train.take(np.unique(train.label, return_index=True)[1])
    scorer = scorers.create(name, **SMALL.get(name, {}))
    if name == "ghost-gpd" and training == "one-sample":
        with pytest.raises(ValueError, match="no class has 5"):
            scorer.fit(lambda: [train], network.head)
        return
    scorer.fit(lambda: [train], network.head)
    rows = adversarial(network, batch_of)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        scores = scorer.score(rows)
    assert not np.isnan(scores).any()
    assert not np.isposinf(scores).any()
    assert np.isneginf(scores[12:]).all()
    for batch in (network.known, network.unknown):
        scores = scorer.score(batch)
        assert not np.isnan(scores).any()
        assert not np.isposinf(scores).any()
    assert all(isinstance(note, str) and note.startswith(name) for note in scorer.notes())


@pytest.mark.parametrize("name", [n for n in ALL if not scorers.scorer_class(n).fits_on_logits])
def test_what_says_so_is_fitted_without_logits(name, network):
    train = network.train
    bare = Rows(train.label, train.pred, train.embedding, row_id=train.row_id)
    with_logits, without = (distributed_fit(name, network, [rows]).score(network.known) for rows in (train, bare))
    assert with_logits.tobytes() == without.tobytes()


@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_has_no_scores(name, network):
    assert fitted(name, network).score(network.known.take(np.zeros(0, int))).shape == (0,)


@pytest.mark.parametrize("name", ALL)
def test_huge_training_rows_do_not_break_a_fit(name, network, batch_of):
    embedding = network.train.embedding.copy()
    embedding[3] = 1e30
    train = batch_of(network.head, embedding, network.train.label)
    scores = scorers.create(name, **SMALL.get(name, {})).fit(lambda: [train], network.head).score(network.known)
    assert not np.isnan(scores).any()


@pytest.mark.parametrize("name", [n for n in ALL if issubclass(scorers.scorer_class(n), ShardedScorer)])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("rows", ["known", "adversarial"])
def test_shards_answer_as_the_whole(name, rows, network, batch_of):
    scorer = fitted(name, network)
    batch = network.known if rows == "known" else adversarial(network, batch_of)
    whole = scorer.score(batch)
    if name == "knn":
        states = []
        for part in split(network.train, np.random.default_rng(0), 6):
            states.append(scorer.begin(0))
            states[-1].update(part)
        shards = [scorer.shard(state) for state in states]
    else:
        shards = [{k: fit} for k, fit in scorer.shards_[0].items()]
    partial = [scorer.score_shard(send(s), batch) for s in shards]
    for order in (partial, partial[::-1]):
        merged = reduce(scorer.merge_partial, order)
        assert scorer.finish(merged, batch).tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", [n for n in ALL if scorers.scorer_class(n).needs_head])
def test_a_method_that_needs_the_head_says_so(name, network):
    with pytest.raises(ValueError, match=f"{name} needs the network's linear head"):
        scorers.create(name).fit(lambda: [network.train])


@pytest.mark.parametrize("name", [n for n in ALL if not scorers.scorer_class(n).needs_head])
def test_the_other_methods_do_without_it(name, network):
    scorer = scorers.create(name, **SMALL.get(name, {})).fit(lambda: [network.train])
    assert np.isfinite(scorer.score(network.known)).all()


def test_a_head_of_another_network_is_refused(network, network_of):
    other = network_of(dim=9)
    with pytest.raises(ValueError, match=r"head weight is \(5, 9\).*K=5, D=12"):
        scorers.create("react").fit(lambda: [network.train], other.head)


@pytest.mark.parametrize("name", [n for n in ALL if scorers.scorer_class(n).passes])
def test_no_labelled_rows_is_refused_or_all_unknown(name, network):
    scorer = scorers.create(name)
    if name in ("ghost", "openmax"):
        scorer.fit(lambda: [network.unknown], network.head)
        assert not np.isnan(scorer.score(network.known)).any()
        assert f"{network.head.weight.shape[0]} classes" in scorer.notes()[0]
    else:
        with pytest.raises(ValueError, match=rf"{name}: .*training"):
            scorer.fit(lambda: [network.unknown], network.head)


def test_no_batches_is_refused():
    with pytest.raises(ValueError, match="no training rows"):
        scorers.create("msp").fit(list)
