"""Options of a fit on a shared cluster: its name, workers, priority and user."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from daskkern.cli.options.cluster_options import ClusterRequest
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.scheduler.metadata import login
from daskkern.errors import SpecError
from daskkern.training.run.settings import FitSettings


@dataclass(frozen=True)
class Submission:
    """The command-line options of a fit on a shared cluster. `user` is None unless it was given."""

    name: str | None
    ranks: int | None
    priority: int
    user: str | None
    share: bool

    @property
    def owner(self) -> str:
        """The user whose quota counts."""
        return login() if self.user is None else self.user

    def gang(self, settings: FitSettings, where: ClusterRequest) -> GangSettings:
        """Return the settings of the fit's gang.

        Raises
        ------
        SpecError
            Where the cluster, or the settings of the fit, give these options no meaning.
        """
        if self.share and settings.memory_budget is None:
            raise SpecError("got --share without --memory, which limits what each rank may use; give both")
        if where.workers == 0 and (self.share or self.ranks is not None):
            raise SpecError("got --share or --ranks with --workers 0, which has no workers to divide; leave them out")
        if where.workers == 0 and (self.priority or self.user is not None):
            raise SpecError("got --priority or --user with --workers 0, where no other fit waits; leave them out")
        memory = settings.memory_budget if self.share else None
        return GangSettings(n_ranks=self.ranks, share_memory=memory, priority=self.priority, user=self.user)


def submission_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which receives them as one `submission`."""

    @click.option("--name", metavar="NAME", help="Name of the fit on the dashboard.  [default: the solver]")
    @click.option("--ranks", type=int, metavar="N", help="Use N of the workers.  [default: all]")
    @click.option(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="Fits with a higher N get workers first; running fits with a lower one commit and hand theirs over.  "
        "[default: 0]",
    )
    @click.option("--user", metavar="NAME", help="The user whose quota counts.  [default: the login name]")
    @click.option(
        "--share", is_flag=True, help="Share workers with other fits that allow it; each keeps to its --memory."
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, name: str | None, ranks: int | None, priority: int, user: str | None, share: bool, **others: Any
    ) -> Any:
        return command(*args, submission=Submission(name, ranks, priority, user, share), **others)

    return wrapped
