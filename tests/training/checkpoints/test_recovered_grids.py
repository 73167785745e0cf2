"""Ranks of a grid of groups are killed in mid-fit: the fit goes on in the same grid, with the same bits, or in another.

Where workers come back, the grid is formed again as it was. Where they do not, the ranks that are left form the grid
that divides them, and scores agree to 1e-4 of the largest.
"""

from dataclasses import replace

import numpy as np
import pytest

from daskkern.events import FitResumed, FitStarted, WorkersLost
from daskkern.training.run.fit import fit
from tests.support.cluster import local_cluster, worker_pids
from tests.support.left_over import assert_nothing_held
from tests.support.recovery.kill_matrix import DEAF, SAFE, Scene, Story, Undisturbed, digits_store, settings_for

pytestmark = [pytest.mark.cluster, pytest.mark.repeated, pytest.mark.timeout(400)]

EPOCHS = 20


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(digits_store(tmp_path_factory.mktemp("grids")))


def _grids(story: Story) -> list[tuple[int, int]]:
    """Return ranks and groups of every gang of a fit."""
    return [(event.size, event.groups) for event in story.events if isinstance(event, FitStarted | FitResumed)]


@pytest.mark.parametrize("solver", ["EigenPro centres", "NystromSGD"])
def test_killed_ranks_come_back_to_the_same_grid_and_bits(solver: str, undisturbed: Undisturbed) -> None:
    """Four ranks in two groups: one of the second group is killed; then one of each group, at equal places."""
    settings = replace(settings_for(solver, EPOCHS), groups=2)
    gang = replace(DEAF, n_ranks=4, rejoin_s=30.0)
    with local_cluster(4) as client:
        quiet = Story(lambda: None)
        want = fit(undisturbed.source, settings, client=client, listener=quiet, gang=gang, policy=SAFE).model
        assert _grids(quiet) == [(4, 2)]
        for victims in ((3,), (1, 3)):
            pids = worker_pids(client)
            scene = Scene(client, list(pids.values()), list(pids))
            story = Story(lambda scene=scene, victims=victims: scene.kill(*victims))
            found = fit(undisturbed.source, settings, client=client, listener=story, gang=gang, policy=SAFE).model
            assert story.kinds(WorkersLost), "the fault was not noticed"
            assert set(_grids(story)) == {(4, 2)}
            assert len(_grids(story)) >= 2
            np.testing.assert_array_equal(found.coef, want.coef)
        assert_nothing_held(client)
    undisturbed.assert_same(settings, found)


def test_killed_ranks_that_do_not_come_back_leave_another_grid(undisturbed: Undisturbed) -> None:
    """Of four ranks in two groups two are left, which are two groups of one rank."""
    settings = replace(settings_for("EigenPro centres", EPOCHS), groups=2)
    with local_cluster(4) as client:
        pids = worker_pids(client)
        scene = Scene(client, list(pids.values()), list(pids))
        for nanny in client.cluster.workers.values():
            if nanny.worker_address in list(pids)[2:]:
                nanny.close_gracefully()  # does not start its worker again
        gang = replace(DEAF, rejoin_s=0.1, elastic=False)
        story = Story(lambda: scene.kill(2, 3))
        found = fit(undisturbed.source, settings, client=client, listener=story, gang=gang, policy=SAFE).model
        grids = _grids(story)
        assert grids[0] == (4, 2)
        assert {ranks for ranks, _ in grids[1:]} <= {2, 3}
        assert all(ranks % groups == 0 for ranks, groups in grids)
        undisturbed.assert_same(settings, found)
