"""Diagnosis of this machine and a cluster: versions, processors, memory, disks, GPUs, and what is missing for a fit."""

from daskkern.doctor.cluster import ClusterReport, WorkerReport, inspect_cluster
from daskkern.doctor.findings import Finding, install_command, judge, judge_cluster
from daskkern.doctor.machine import Folder, Machine, inspect_machine
from daskkern.doctor.packages import Package, inspect_packages

__all__ = [
    "ClusterReport",
    "Finding",
    "Folder",
    "Machine",
    "Package",
    "WorkerReport",
    "inspect_cluster",
    "inspect_machine",
    "inspect_packages",
    "install_command",
    "judge",
    "judge_cluster",
]
