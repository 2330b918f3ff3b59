import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.subsets import check_class_sizes, stratified_subset
from harness.errors import UserError


@given(counts=st.lists(st.integers(1, 40), min_size=2, max_size=12), data=st.data())
def test_subset_has_the_size_asked_for_and_every_class_in_proportion(counts: list[int], data: st.DataObject) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    n = data.draw(st.integers(len(counts), len(y)))
    rows = stratified_subset(y, n, "n_train")
    taken = np.bincount(y[rows], minlength=len(counts))
    share = n * np.array(counts) / len(y)
    assert len(rows) == len(set(rows.tolist())) == n
    assert taken.min() >= 1
    if share.min() >= 1:  # else rare classes are raised to one and others pay for it
        assert np.abs(taken - share).max() < 1


def test_subset_of_none_is_everything() -> None:
    assert stratified_subset(np.array([0, 1, 0]), None, "n_train").tolist() == [0, 1, 2]


def test_train_and_test_subsets_are_drawn_independently() -> None:
    y = np.arange(100) % 2
    assert stratified_subset(y, 10, "n_train").tolist() != stratified_subset(y, 10, "n_test").tolist()


def test_class_sizes() -> None:
    check_class_sizes(np.array([0, 0, 1, 1]), 2, "y", "ab")
    with pytest.raises(UserError, match="y must hold at least two classes; it holds one, with 3 samples"):
        check_class_sizes(np.zeros(3, dtype=int), 1, "y", "a")


def test_the_message_about_a_rare_class_names_it_and_can_be_followed() -> None:
    with pytest.raises(
        UserError, match=r"at least 2 samples of every class.*too few have: gnu \(1\), yak \(1\); remove the"
    ):
        check_class_sizes(np.array([0, 0, 1, 2]), 2, "y", ["ant", "gnu", "yak"])
