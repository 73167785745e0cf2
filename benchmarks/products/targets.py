"""The performance targets, each checked on the figures of one run."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_EXACT = 1e-5
_LINEAR_PERCENT = 15.0
_FLAT_PERCENT = 10.0
_SPARSE_RATIO = 5.0
_MATMUL_SHARE = 0.9
# torch as its users write it, the whole block in place; hand-tuned tiles are reported, but not judged.
_TORCH = "torch_whole_block"
_PEER_RATIOS = ((_TORCH, 54, 4.0), ("keops", 54, 8.0))  # method, most features, least ratio
_TORCH_AT_128 = 2.0


@dataclass(frozen=True)
class Verdict:
    """One target: the required and the measured value, and whether it is met; None if a peer was missing."""

    target: str
    asked: str
    found: str
    met: bool | None

    def __str__(self) -> str:
        word = {True: "met", False: "MISSED", None: "not judged"}[self.met]
        return f"{word:10s} {self.target}: required {self.asked}, found {self.found}"

    def as_record(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        return asdict(self)


def judge(run: dict[str, Any]) -> list[Verdict]:
    """Return the verdicts on the sections that ran; a section that failed is a missed target."""
    verdicts: list[Verdict] = []
    judges = {"dense": _dense, "sparse": _sparse, "scaling": _scaling}
    for section, figures in run["sections"].items():
        if isinstance(figures, dict) and "failed" in figures:
            verdicts.append(Verdict(section, "a result", figures["failed"], False))
        else:
            verdicts += judges[section](figures)
    return verdicts


def _dense(records: list[dict[str, Any]]) -> Iterator[Verdict]:
    for record in records:
        methods = record["methods"]
        where = f"{record['kernel']} d={record['n_features']} c={record['n_outputs']}"
        for method, figures in methods.items():
            if method == "daskkern":
                error = figures["largest_relative_error"]
                yield Verdict(f"{where} error", f"at most {_EXACT:g}", f"{error:g}", error <= _EXACT)
        if "daskkern" not in methods:
            continue
        for peer, ratio in _required(record["n_features"]):
            asked = f"{ratio:g} x {peer}"
            if peer not in methods:
                yield Verdict(where, asked, f"no {peer}", None)
                continue
            found = methods[peer]["daskkern_speed_ratio"]
            yield Verdict(where, asked, f"{found:g} x", found >= ratio)
        if record["n_features"] == 784:
            share = methods["daskkern"]["share_of_matmul_distances_rate"]
            yield Verdict(where, f"{_MATMUL_SHARE:.0%} of np.matmul", f"{share:.0%}", share >= _MATMUL_SHARE)


def _required(n_features: int) -> list[tuple[str, float]]:
    if n_features == 128:
        return [(_TORCH, _TORCH_AT_128)]
    return [(peer, ratio) for peer, most, ratio in _PEER_RATIOS if n_features <= most]


def _sparse(records: list[dict[str, Any]]) -> Iterator[Verdict]:
    for record in records:
        for path in ("csr_by_csr", "csr_by_dense"):
            figures = record["paths"][path]
            where = f"sparse {record['kernel']} {path}"
            ratio, difference = figures["speed_ratio_to_dense"], figures["largest_relative_difference_to_dense"]
            yield Verdict(where, f"{_SPARSE_RATIO:g} x dense", f"{ratio:g} x", ratio >= _SPARSE_RATIO)
            yield Verdict(where, f"equal to dense within {_EXACT:g}", f"{difference:g}", difference <= _EXACT)


def _scaling(figures: dict[str, Any]) -> Iterator[Verdict]:
    for what, key, most in (
        ("time per entry", "time_per_entry_spread_percent", _LINEAR_PERCENT),
        ("peak memory", "peak_memory_spread_percent", _FLAT_PERCENT),
    ):
        spread = figures[key]
        yield Verdict(f"scaling: {what}", f"a spread of at most {most:g}%", f"{spread:g}%", spread <= most)
