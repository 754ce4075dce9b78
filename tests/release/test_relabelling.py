"""Images by the labels that they are given: the right ones, in order, and never none."""

import numpy as np
import pytest

from dpaf_jax.release.relabel import PATIENCE, by_label

MEANT = np.arange(20) % 4


def drawer(given_of):
    """Images are (number of the batch, place); labels by a rule."""

    def draw(number, meant):
        place = np.arange(len(meant))
        images = np.stack([np.full(len(meant), number), place], axis=1)
        return images, given_of(number, meant)

    return draw


def labels_of(images, given_of):
    return np.array([given_of(number, MEANT)[place] for number, place in images])


def shifted(number, meant):
    return np.where(np.arange(len(meant)) % 3 == number % 3, (meant + 1) % 4, meant)


@pytest.mark.parametrize(
    'wanted', [np.arange(50) % 4, np.full(33, 2), np.array([], int)]
)
def test_every_image_has_the_label_that_it_was_given(wanted):
    made = list(by_label(drawer(shifted), wanted, MEANT, 4))
    images = np.concatenate(made) if made else np.zeros((0, 2), int)
    assert np.array_equal(labels_of(images, shifted), wanted)
    assert len({tuple(image) for image in images}) == len(wanted)  # each only once
    assert [len(batch) for batch in made] == [20] * (len(wanted) // 20) + (
        [len(wanted) % 20] if len(wanted) % 20 else []
    )


def test_what_is_wanted_does_not_change_what_a_class_looks_like():
    mixed = np.concatenate(list(by_label(drawer(shifted), np.arange(20) % 4, MEANT, 4)))
    alone = np.concatenate(list(by_label(drawer(shifted), np.full(5, 2), MEANT, 4)))
    assert np.array_equal(mixed[np.arange(20) % 4 == 2], alone)


def test_a_class_that_is_never_seen_is_served_by_what_was_meant_to_be_it(caplog):
    def never_three(number, meant):
        return np.where(meant == 3, 0, meant)

    wanted = np.arange(12) % 4
    images = np.concatenate(list(by_label(drawer(never_three), wanted, MEANT, 4)))
    threes = images[wanted == 3]
    assert (MEANT[threes[:, 1]] == 3).all() and (threes[:, 0] >= PATIENCE - 1).all()
    assert '[3]' in caplog.text
    others = images[wanted != 3]
    assert np.array_equal(labels_of(others, never_three), wanted[wanted != 3])


def test_a_class_that_is_hardly_seen_does_not_take_hundreds_of_batches(caplog):
    """One image in every third batch is less than a fiftieth of the 50 meant to be it."""
    meant, drawn = np.arange(200) % 4, []

    def hardly_three(number, meant):
        drawn.append(number)
        given = np.where(meant == 3, 0, meant)
        given[0] = 3 if number % 3 == 0 else given[0]
        return given

    wanted = np.full(1000, 3)
    images = np.concatenate(list(by_label(drawer(hardly_three), wanted, meant, 4)))
    assert len(images) == 1000 and len(drawn) < 50 and '[3]' in caplog.text


def test_a_class_too_rare_for_a_batch_is_served_and_changes_no_other():
    """What a batch has of it beside the prior's share counts for nothing else."""
    made = drawer(lambda number, meant: np.where(meant == 4, 0, meant))
    wanted = np.array([4, *[0] * 12, 4])
    images = np.concatenate(list(by_label(made, wanted, MEANT, 5)))
    rare, other = images[wanted == 4], images[wanted != 4]
    assert (rare[:, 1] == len(MEANT)).all()  # the one behind those of the prior
    assert len({tuple(image) for image in rare}) == 2
    assert (other[:, 1] < len(MEANT)).all()
