"""``daskkern doctor``: diagnosis of this machine and of a cluster, with remedies for what it finds."""

import dataclasses

import click

from daskkern.cli.console import listing, say, say_json
from daskkern.cli.options.cluster_options import ClusterRequest, cluster_options
from daskkern.doctor import (
    ClusterReport,
    Finding,
    Folder,
    Machine,
    Package,
    WorkerReport,
    inspect_cluster,
    inspect_machine,
    install_command,
    judge,
    judge_cluster,
)
from daskkern.errors import ClusterError
from daskkern.monitor.formatting import format_bytes

_WORKER_COLUMNS = (
    "worker",
    "host",
    "Python",
    "daskkern",
    "dask",
    "threads",
    "limit",
    "scratch",
    "products",
    "GPUs",
)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@cluster_options
def command(as_json: bool, where: ClusterRequest) -> None:
    """Report what this machine - with --scheduler or --workers also a cluster - can do, and what is missing.

    The exit code is 0 when a fit can run; otherwise it is 1, and the reason is printed.
    """
    machine = inspect_machine()
    cluster = _cluster(where)
    findings = judge(machine) if cluster is None else (*judge(machine), *judge_cluster(cluster, machine))
    if as_json:
        say_json(_record(machine, cluster, findings))
    else:
        _show(machine, cluster, findings)
    stops = [finding for finding in findings if finding.stops]
    if stops:
        raise ClusterError(f"no fit can run: {stops[0]}")


def _cluster(where: ClusterRequest) -> ClusterReport | None:
    """Return the report of the requested cluster, which is started first if it consists of local workers."""
    if not where.named and not where.workers and where.gpus is None:
        return None
    with where.connection() as connection:
        return inspect_cluster(connection.client)


def _record(machine: Machine, cluster: ClusterReport | None, findings: tuple[Finding, ...]) -> dict[str, object]:
    return {
        "can_fit": not any(finding.stops for finding in findings),
        "machine": dataclasses.asdict(machine),
        "cluster": None if cluster is None else dataclasses.asdict(cluster),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }


def _show(machine: Machine, cluster: ClusterReport | None, findings: tuple[Finding, ...]) -> None:
    listing(("this machine", ""), _facts(machine))
    say()
    listing(("package", "installed", "wanted", "state", "for"), [_package(package) for package in machine.packages])
    if cluster is not None:
        say()
        n_workers = len(cluster.workers)
        say(f"cluster {cluster.scheduler}: {n_workers} worker{'' if n_workers == 1 else 's'}")
        if cluster.workers:
            listing(_WORKER_COLUMNS, [_worker(worker) for worker in cluster.workers])
    say()
    for finding in findings:
        say(f"{'problem' if finding.stops else 'note'}: {finding}")
    if not any(finding.stops for finding in findings):
        say(f"a fit can run {'here' if cluster is None else 'on this cluster'}")


def _facts(machine: Machine) -> list[tuple[str, ...]]:
    cuda = machine.cuda
    names = [f"{gpu.name}, {format_bytes(gpu.memory)}, driver {gpu.driver}" for gpu in machine.gpus]
    versions = (("CUDA", cuda.cuda), ("driver's CUDA", cuda.driver_cuda), ("NCCL", cuda.nccl))
    usable = f"{cuda.usable} usable by CuPy, " + ", ".join(f"{what} {found or 'missing'}" for what, found in versions)
    return [
        ("daskkern", f"{machine.daskkern}, Python {machine.python} ({machine.executable})"),
        ("system", f"{machine.host}, {machine.system}"),
        ("processor", f"{machine.cores} cores, {machine.threads} threads"),
        ("kernel products", _products(machine)),
        ("BLAS", "; ".join(machine.blas) or "none was found"),
        ("memory", f"{format_bytes(machine.memory_free)} free of {format_bytes(machine.memory)}"),
        ("GPUs", "; ".join(names) or "none (nvidia-smi shows none)"),
        ("CUDA", usable if cuda.usable else cuda.problem),
        ("current folder", _folder(machine.folder)),
        ("temporary files", _folder(machine.scratch)),
    ]


def _products(machine: Machine) -> str:
    how = f"compiled, {machine.processor}" if machine.processor else "NumPy, not compiled"
    return f"{how}; largest error of a trial {machine.product_error:.2g}"


def _folder(folder: Folder) -> str:
    state = "" if folder.writable else ", cannot be written to"
    return f"{folder.path}, {format_bytes(folder.free)} free{', in memory' if folder.in_memory else ''}{state}"


def _package(package: Package) -> tuple[str, ...]:
    optional = package.extra and not package.fits
    purpose = f"{package.purpose}: {install_command(package)}" if optional else package.purpose
    state = "optional" if package.extra and not package.version else package.state
    return (package.name, package.version or "-", package.wanted or "any", state, purpose)


def _worker(worker: WorkerReport) -> tuple[str, ...]:
    limit = format_bytes(worker.memory_limit) if worker.memory_limit else "none"
    machine = worker.machine
    if machine is None:
        return (worker.name, "?", "?", "?", "?", str(worker.threads), limit, "?", "?", "?")
    return (
        worker.name,
        machine.host,
        machine.python,
        machine.daskkern,
        machine.version("dask"),
        str(worker.threads),
        limit,
        f"{format_bytes(machine.scratch.free)} free",
        machine.processor or "NumPy",
        str(machine.cuda.usable),
    )
