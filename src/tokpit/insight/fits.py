"""Models of throughput against concurrency, fitted by least squares of relative errors. Stdlib only.

Batch with a cap: X(m) = m / (alpha + beta m) with m = min(C, B): a step costs alpha plus beta per running request, and
no more than B run. Universal scalability law (Gunther 2007): X(N) = lambda N / (1 + sigma (N-1) + kappa N (N-1)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import msgspec

XY = Sequence[tuple[float, float]]
"""(concurrency, throughput) pairs."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted model. `residuals` are (model / measured - 1) at each point, `rms` their root mean square."""

    name: str
    parameters: dict[str, float]
    residuals: tuple[float, ...]

    @property
    def rms(self) -> float:
        """Typical relative error."""
        return math.sqrt(math.fsum(r * r for r in self.residuals) / len(self.residuals))

    def at(self, concurrency: float) -> float:
        """Throughput that the model gives at this concurrency."""
        p = self.parameters
        if self.name == "usl":
            n = concurrency
            return p["lambda"] * n / (1 + p["sigma"] * (n - 1) + p["kappa"] * n * (n - 1))
        m = min(concurrency, p["cap"])
        return m / (p["alpha"] + p["beta"] * m)


def least_squares(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float] | None:
    """Coefficients >= 0 that minimise the squared error of `rows` x coefficients against `targets`.

    Tries every set of coefficients held at 0 (a handful of columns only); None where nothing can be solved.
    """
    width = len(rows[0])
    best: tuple[float, list[float]] | None = None
    for size in range(width, 0, -1):
        for kept in combinations(range(width), size):
            solved = _solve([[row[i] for i in kept] for row in rows], targets)
            if solved is None or min(solved) < 0:
                continue
            full = [0.0] * width
            for i, value in zip(kept, solved, strict=True):
                full[i] = value
            error = math.fsum(
                (math.fsum(a * b for a, b in zip(row, full, strict=True)) - y) ** 2
                for row, y in zip(rows, targets, strict=True)
            )
            if best is None or error < best[0] - 1e-12:
                best = (error, full)
    return best[1] if best else None


def _solve(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float] | None:
    """Normal equations by Gauss elimination with pivoting."""
    n = len(rows[0])
    a = [
        [math.fsum(row[i] * row[j] for row in rows) for j in range(n)]
        + [math.fsum(row[i] * y for row, y in zip(rows, targets, strict=True))]
        for i in range(n)
    ]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(a[k][i]))
        if abs(a[pivot][i]) < 1e-12 * max(1.0, abs(a[0][0])):
            return None
        a[i], a[pivot] = a[pivot], a[i]
        for k in range(n):
            if k != i:
                factor = a[k][i] / a[i][i]
                a[k] = [x - factor * y for x, y in zip(a[k], a[i], strict=True)]
    return [a[i][n] / a[i][i] for i in range(n)]


def batch_fit(points: XY, cap: float = math.inf) -> Fit | None:
    """Batch model with a known cap (none: infinite). None for fewer than two different loads."""
    loads = [min(c, cap) for c, _ in points]
    if len(set(loads)) < 2:
        return None
    rows = [(x / m, x) for m, (_, x) in zip(loads, points, strict=True)]
    solved = least_squares(rows, [1.0] * len(points))
    if solved is None:
        return None
    return _fit("batch", {"alpha": solved[0], "beta": solved[1], "cap": cap}, points)


def capped_fit(points: XY) -> Fit | None:
    """Batch model with the cap that fits best, searched between the smallest and the largest concurrency.

    None for fewer than five points: three parameters through four points say nothing.
    """
    if len(points) < 5:
        return None
    low, high = min(c for c, _ in points), max(c for c, _ in points)

    def error(cap: float) -> float:
        fit = batch_fit(points, cap)
        return fit.rms if fit else math.inf

    steps = 160
    grid = [low * (high / low) ** (i / steps) for i in range(1, steps + 1)]
    at = min(range(steps), key=lambda i: error(grid[i]))
    return batch_fit(points, _golden(error, grid[max(0, at - 1)], grid[min(steps - 1, at + 1)]))


def usl_fit(points: XY) -> Fit | None:
    """Universal scalability law; None for fewer than four points.

    Linear in 1/lambda, sigma/lambda and kappa/lambda: N / X = a + b (N-1) + c N (N-1), each row weighed by X / N.
    """
    if len(points) < 4:
        return None
    rows = [(x / n, x / n * (n - 1), x * (n - 1)) for n, x in points]
    solved = least_squares(rows, [1.0] * len(points))
    if solved is None or solved[0] <= 0:
        return None
    a, b, c = solved
    return _fit("usl", {"lambda": 1 / a, "sigma": b / a, "kappa": c / a}, points)


def _fit(name: str, parameters: dict[str, float], points: XY) -> Fit:
    bare = Fit(name=name, parameters=parameters, residuals=())
    return Fit(name=name, parameters=parameters, residuals=tuple(bare.at(c) / x - 1 for c, x in points))


def _golden(f: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function between two bounds, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        width = (high - low) * ratio
        a, b = high - width, low + width
        if f(a) <= f(b):
            high = b
        else:
            low = a
    return (low + high) / 2
