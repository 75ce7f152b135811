"""The papers' recursions, one matrix row per node, in plain NumPy: nothing here uses the code under test.

Only random draws are shared: which entries and fractions are drawn comes from the nodes' streams.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pywt
from numpy.typing import NDArray

from gossamer.compressors import random_entries
from gossamer.core.rng import Streams

Matrix = NDArray[np.float64]


class Problem(NamedTuple):
    x: Matrix  # (n, D) at the start
    gradient: Callable[[Matrix], Matrix]
    loss: Callable[[Matrix], Matrix]  # (n,)
    lr: float
    local_steps: int
    weights: list[Matrix]  # W of each round
    seed: int

    def descend(self, x: Matrix) -> Matrix:
        for _ in range(self.local_steps):
            x = x - self.lr * self.gradient(x)
        return x

    def streams(self, t: int) -> Streams:
        return Streams(self.seed, range(len(self.x)), t)


def top(x: Matrix, fraction: float) -> Matrix:
    """The largest entries of each row, the others 0."""
    k = max(1, int(fraction * x.shape[1] + 0.5))
    return np.where(abs(x) >= np.sort(abs(x), axis=1)[:, -k, None], x, 0)


FRACTIONS = [0.10, 0.15, 0.20, 0.25, 0.30, 0.40, 1.0]


def fractions(p: Problem, t: int) -> Matrix:
    """JWINS' cut-off of each node: one of seven, equally likely."""
    return np.array(FRACTIONS)[(p.streams(t).uniform("cutoff").numpy()[:, 0] * 7).astype(int)]


def quantized(x: Matrix, bits: int) -> Matrix:
    """Each row rounded to multiples of its largest entry / (2^(bits-1) - 1)."""
    scale = abs(x).max(1, keepdims=True) / (2 ** (bits - 1) - 1)
    return np.round(x / np.where(scale, scale, 1)) * scale


def wavelet_matrix(d: int) -> Matrix:
    """sym2, 4 levels, periodized, of the first multiple of 16 entries; the others stay."""
    n = d // 16 * 16
    matrix = np.eye(d)
    columns = [np.concatenate(pywt.wavedec(e, "sym2", mode="periodization", level=4)) for e in np.eye(n)]
    matrix[:n, :n] = np.stack(columns, axis=1)
    return matrix


def dpsgd(p: Problem) -> Matrix:
    x = p.x
    for w in p.weights:
        x = w @ p.descend(x)
    return x


def clipped_gossip(p: Problem, radius: float | None = None) -> Matrix:
    x, n = p.x, len(p.x)
    for w in p.weights:
        x = p.descend(x)
        z = x[None] - x[:, None]  # (i, j, D): from i to j
        length = np.linalg.norm(z, axis=2) + np.eye(n)
        near = [np.sort([length[i, j] for j in range(n) if j != i and w[i, j]]) for i in range(n)]
        tau = np.array([radius or each[(len(each) - 1) // 2] for each in near])
        x = x + np.einsum("ij,ij,ijd->id", w, np.minimum(1, tau[:, None] / length), z)
    return x


def clipped_gossip_fixed(p: Problem) -> Matrix:
    return clipped_gossip(p, 0.5)


def coordinate_median(p: Problem) -> Matrix:
    x = p.x
    for w in p.weights:
        x = p.descend(x)
        x = np.stack([np.median(x[row > 0], axis=0) for row in w])
    return x


def random_sampling(p: Problem) -> Matrix:
    x, (n, d) = p.x, p.x.shape
    for t, w in enumerate(p.weights):
        x = p.descend(x)
        m = random_entries(p.streams(t), 0.3, d).numpy()
        x = np.stack([x[i] + sum(w[i, j] * m[j] * (x[j] - x[i]) for j in range(n)) for i in range(n)])
    return x


def jwins(p: Problem, wavelet: bool = True, accumulate: bool = True, randomize: bool = True, bits: int = 0) -> Matrix:
    x, v, error, (n, d) = p.x, np.zeros_like(p.x), np.zeros_like(p.x), p.x.shape
    transform = wavelet_matrix(d) if wavelet else np.eye(d)
    for t, w in enumerate(p.weights):
        start, x = x @ transform.T, p.descend(x)
        c = x @ transform.T
        alpha = fractions(p, t) if randomize else np.full(n, np.mean(FRACTIONS))
        m = np.stack([top(abs(v + c - start)[i : i + 1], alpha[i])[0] > 0 for i in range(n)])
        seen = quantized(np.where(m, c + error, 0), bits) if bits else c
        error = np.where(m, c + error - seen, error)
        y = np.stack([c[i] + sum(w[i, j] * m[j] * (seen[j] - c[i]) for j in range(n)) for i in range(n)])
        x, v = y @ transform, (v * ~m + y - start if accumulate else 0 * v)
    return x


def jwins_8_bit(p: Problem) -> Matrix:
    return jwins(p, bits=8)


def jwins_without_wavelet(p: Problem) -> Matrix:
    return jwins(p, wavelet=False)


def jwins_without_accumulation(p: Problem) -> Matrix:
    return jwins(p, accumulate=False)


def jwins_without_randomized_cutoff(p: Problem) -> Matrix:
    return jwins(p, randomize=False)


def choco(p: Problem) -> Matrix:
    x, xh = p.x, np.zeros_like(p.x)
    for w in p.weights:
        x = p.descend(x)
        xh = xh + top(x - xh, 0.3)
        x = x + 0.4 * (w - np.eye(len(w))) @ xh
    return x


def silk(p: Problem) -> Matrix:
    x, transform = p.x, wavelet_matrix(p.x.shape[1])
    xh = x @ transform.T
    for w in p.weights:
        x = p.descend(x)
        q = top(x @ transform.T - xh, 0.3)
        k = 16  # of 53
        xh = xh + np.sign(q) * abs(q).sum(1, keepdims=True) / k
        x = x + 0.4 * (w - np.eye(len(w))) @ xh @ transform
    return x


def lace(p: Problem) -> Matrix:
    x, transform, channels = p.x, wavelet_matrix(p.x.shape[1]), 3
    memory = [np.zeros_like(x) for _ in range(channels)]
    for t, w in enumerate(p.weights):
        x = p.descend(x)
        d = (x - p.x) @ transform.T - memory[t % channels]
        unit = np.sort(abs(d))[:, [-16]] / 0.65  # 16 of 53 are kept
        level = np.sign(d) * np.floor(abs(d) / unit * (1 + 2**-20) + 0.35)
        q = level * (level * d).sum(1, keepdims=True) / np.maximum((level**2).sum(1, keepdims=True), 1)
        memory[t % channels] = memory[t % channels] + w @ q
        x = x + (w @ q - q) @ transform
    return x


def deep_squeeze(p: Problem) -> Matrix:
    x, d = p.x, np.zeros_like(p.x)
    for w in p.weights:
        x = p.descend(x)
        c = top(x + d, 0.3)
        d = x + d - c
        x = x + 0.2 * (w - np.eye(len(w))) @ c
    return x


def least_combination(own: Matrix, others: Matrix, margin: float) -> Matrix:
    """own + v others with the least norm over v >= margin: every set of entries that are at the margin is tried."""
    k, found = len(others), []
    for at_margin in product([True, False], repeat=k):
        free = ~np.array(at_margin)
        v = np.full(k, margin)
        if free.any():
            v[free] = np.linalg.lstsq(others[free].T, -(own + v[~free] @ others[~free]), rcond=None)[0]
        if (v >= margin - 1e-12).all():
            found.append(own + v @ others)
    return min(found, key=np.linalg.norm)


def cga(
    p: Problem, momentum: float = 0.9, margin: float = 0.5, compress: Callable[[Matrix], Matrix] | None = None
) -> Matrix:
    x, n, velocity = p.x, len(p.x), np.zeros_like(p.x)
    error = np.zeros((n, *x.shape))
    for w in p.weights:
        g = np.stack([p.gradient(np.tile(one, (n, 1))) for one in x])  # (i, j, D): of i's model on j's data
        if compress:
            corrected = g + error
            sent = np.stack([compress(each) for each in corrected])
            error, own = corrected - sent, g[range(n), range(n)]
            g = sent
            g[range(n), range(n)] = own
        near = [[j for j in range(n) if j != i and w[i, j]] for i in range(n)]
        step = [least_combination(w[i, i] * g[i, i], w[i, near[i], None] * g[i, near[i]], margin) for i in range(n)]
        velocity = momentum * velocity - p.lr * np.stack(step)
        x = w @ x + velocity
    return x


def cga_projection(p: Problem) -> Matrix:
    return cga(p, 0.5, 0)


def comp_cga(p: Problem) -> Matrix:
    return cga(p, compress=lambda v: np.where(v < 0, -1, 1) * abs(v).mean(1, keepdims=True))


def comp_cga_top_k(p: Problem) -> Matrix:
    return cga(p, compress=lambda v: top(v, 0.3))


def d2(p: Problem) -> Matrix:
    w = p.weights[0]
    before, g_before = p.x, p.gradient(p.x)
    x = w @ (p.x - p.lr * g_before)
    for _ in p.weights[1:]:
        g = p.gradient(x)
        x, before, g_before = w @ (2 * x - before - p.lr * g + p.lr * g_before), x, g
    return x


def gradient_tracking(p: Problem) -> Matrix:
    x, g = p.x, p.gradient(p.x)
    y = g
    for w in p.weights:
        x = w @ (x - p.lr * y)
        g_next = p.gradient(x)
        y, g = w @ y + g_next - g, g_next
    return x


def dcd_psgd(p: Problem) -> Matrix:
    x, average = p.x, p.x
    for w in p.weights:
        x = x + quantized(average - p.lr * p.gradient(x) - x, 8)
        average = w @ x
    return x


def ecd_psgd(p: Problem) -> Matrix:
    x, estimate, w = p.x, p.x, p.weights[0]
    for t in range(1, len(p.weights) + 1):
        x_next = w @ estimate - p.lr * p.gradient(x)
        z = quantized((1 - t / 2) * x + t / 2 * x_next, 8)
        estimate, x = (1 - 2 / t) * estimate + 2 / t * z, x_next
    return x


def sgp(p: Problem) -> Matrix:
    x, u = p.x, np.ones((len(p.x), 1))
    for w in p.weights:
        for _ in range(p.local_steps):
            x = x - p.lr * p.gradient(x / u)
        x, u = w @ x, w @ u
    return x / u


def sparse_push(p: Problem, full_rounds: int = 0) -> Matrix:
    x, d, u = p.x, np.zeros_like(p.x), np.ones((len(p.x), 1))
    for t, w in enumerate(p.weights):
        if t >= len(p.weights) - full_rounds:
            x, u = w @ x, w @ u
            continue
        for _ in range(p.local_steps):
            x = x - p.lr * p.gradient(x / u)
        c = top(x + d, 0.3)
        d = x + d - c
        away = 0.2 * (w - np.eye(len(w)))
        x, u = x + away @ c, u + away @ u
    return x / u


def scsp(p: Problem) -> Matrix:
    return sparse_push(p, full_rounds=4)


def quant_sgp(p: Problem) -> Matrix:
    x, xh, u = p.x, np.zeros_like(p.x), np.ones((len(p.x), 1))
    for w in p.weights:
        for _ in range(p.local_steps):
            x = x - p.lr * p.gradient(x / u)
        xh = xh + top(x - xh, 0.3)
        away = 0.4 * (w - np.eye(len(w)))
        x, u = x + away @ xh, u + away @ u
    return x / u


def quasi_global_momentum(p: Problem) -> Matrix:
    x, m = p.x, np.zeros_like(p.x)
    for w in p.weights:
        start = x
        for _ in range(p.local_steps):
            x = x - p.lr * (0.9 * m + p.gradient(x))
        x = w @ x
        m = 0.9 * m + 0.1 * (start - x) / (p.lr * p.local_steps)
    return x


def adam(p: Problem) -> Matrix:
    x, m, v, t = p.x, np.zeros_like(p.x), np.zeros_like(p.x), 0
    for w in p.weights:
        for _ in range(p.local_steps):
            g, t = p.gradient(x), t + 1
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            x = x - p.lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        x = w @ x
    return x


def drift_correction(p: Problem) -> Matrix:
    x, d = p.x, np.zeros_like(p.x)
    for w in p.weights:
        for _ in range(p.local_steps):
            x = x - p.lr * (p.gradient(x) + d)
        d = d + 0.5 * (x - w @ x) / (p.lr * p.local_steps)
        x = w @ x
    return x


def drift_correction_of_choco(p: Problem) -> Matrix:
    x, xh, d = p.x, np.zeros_like(p.x), np.zeros_like(p.x)
    for w in p.weights:
        for _ in range(p.local_steps):
            x = x - p.lr * (p.gradient(x) + d)
        xh = xh + top(x - xh, 0.3)
        gap = 0.4 * (w - np.eye(len(w))) @ xh
        x, d = x + gap, d - 0.1 * gap / (p.lr * p.local_steps)
    return x


def epidemic(p: Problem) -> Matrix:
    x = p.x
    for w in p.weights:
        heard = (w > 0).astype(float)
        x = heard @ p.descend(x) / heard.sum(1, keepdims=True)
    return x


def skew_scout(p: Problem) -> Matrix:
    """JWINS with a fraction of each node's own; every second round is a trial, in which everything is shared."""
    x, fraction, (n, d) = p.x, np.full(len(p.x), 0.2), p.x.shape
    v, transform = np.zeros((n, d)), wavelet_matrix(d)
    for t, w in enumerate(p.weights):
        start, x = x @ transform.T, p.descend(x)
        c, trial = x @ transform.T, t % 2 == 1
        alpha = np.ones(n) if trial else fraction
        m = np.stack([top(abs(v + c - start)[i : i + 1], alpha[i])[0] > 0 for i in range(n)])
        y = np.stack([c[i] + sum(w[i, j] * m[j] * (c[j] - c[i]) for j in range(n)) for i in range(n)])
        if trial:
            lost = p.loss(y @ transform) / p.loss(x) - 1
            fraction = np.clip(np.where(lost > 0.1, fraction * 1.5, fraction / 1.5), 0.05, 1)
        x, v = y @ transform, v * ~m + y - start
    return x


def jwins_push(p: Problem) -> Matrix:
    """Each coefficient has its own column-stochastic matrix: the graph's share of what is sent, the rest stays."""
    (n, d), transform = p.x.shape, wavelet_matrix(p.x.shape[1])
    c, u, v = p.x @ transform.T, np.ones((n, d)), np.zeros((n, d))
    for t, w in enumerate(p.weights):
        start = c / u
        for _ in range(p.local_steps):
            c = c - p.lr * p.gradient((c / u) @ transform) @ transform.T
        alpha = fractions(p, t)
        m = np.stack([top(abs(v + c / u - start)[i : i + 1], alpha[i])[0] > 0 for i in range(n)])
        share = np.where(m, np.clip(np.floor((u - 1 / 4) * 16 + 0.01), 0, 127) / 16 / u, 0)  # of the mass that moves
        c, u = w @ (share * c) + (1 - share) * c, w @ (share * u) + (1 - share) * u
        v = v * ~m + c / u - start
    return (c / u) @ transform
