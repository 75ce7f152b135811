"""Ranks that speak by torch.distributed, over gloo: what they send each other are bytes in the machines' memory.

Every call takes at most the group's timeout. If a rank is lost, or does not answer for so long, the others say so and
end; nothing is tried again, because the run can be continued from its last checkpoint with any number of ranks.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from gossamer.cluster.environment import Environment
from gossamer.cluster.placement import PLACEMENTS
from gossamer.experiments.experiment import ExperimentError
from gossamer.simulator.ranks import ELSEWHERE, Integers, Placement
from gossamer.simulator.worker_pool import WorkerError
from gossamer.training.block import NodeError

_ERRORS: dict[str, type[Exception]] = {"experiment": ExperimentError, "node": NodeError, "worker": WorkerError}


class LostRankError(WorkerError):
    """A rank died, hangs, or cannot be reached."""


class RankGroup:
    """This process's rank among all; see `simulator.ranks.Ranks`. Close it, or use it in a `with`."""

    def __init__(self, environment: Environment, timeout: float = 600, placement: str = "contiguous"):
        self.rank, self.number = environment.rank, environment.number
        self._environment, self._timeout, self._placement = environment, timeout, placement
        self._met = False
        self.was_met = False  # did the ranks ever meet?

    def __enter__(self) -> "RankGroup":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._met:
            self._met = False
            with suppress(RuntimeError):  # others may be gone
                dist.destroy_process_group()

    def placement(self, links: Callable[[], tuple[Integers, Integers]], nodes: int, chunk: int) -> Placement:
        num_chunks = -(-nodes // chunk)
        if self.number > num_chunks:
            most = "one rank" if num_chunks == 1 else f"at most {num_chunks} ranks"
            if chunk > 1:
                raise ExperimentError(
                    f"{self.number} ranks were given, and the {nodes} nodes are trained in chunks of {chunk}, which "
                    f'stay together; take {most}, more nodes, or strategy = "rows"'
                )
            raise ExperimentError(f"{self.number} ranks were given, and there are {nodes} nodes; take {most}")
        return Placement(PLACEMENTS[self._placement](links, nodes, chunk, self.number), self.rank)

    def begin(self, fingerprint: Mapping[str, str]) -> None:
        where = f"{self.number} ranks at {self._environment.where}"
        try:
            self._environment.set_interface()
            timeout, method = timedelta(seconds=self._timeout), self._environment.method
            store, *_ = next(iter(rendezvous(method, self.rank, self.number, timeout=timeout)))
            store.set_timeout(timeout)
            fresh = PrefixStore(f"attempt {self._environment.attempt}", store)  # torchrun's outlives a restart
            dist.init_process_group("gloo", store=fresh, rank=self.rank, world_size=self.number, timeout=timeout)
        except (RuntimeError, ValueError) as error:  # dist.DistError is a RuntimeError
            raise LostRankError(
                f"rank {self.rank} did not meet the other ranks within {self._timeout:g} s ({where}); "
                f"start all of them, with the same address ({_first_line(error)})"
            ) from None
        self._met = self.was_met = True
        versions = f"{sys.modules['gossamer'].__version__} {torch.__version__} {np.__version__}"  # others, other bits
        self._check_same({"version of gossamer, torch or NumPy": versions, **fingerprint})

    def _check_same(self, fingerprint: Mapping[str, str]) -> None:
        digests = [hashlib.sha256(text.encode()).digest() for text in fingerprint.values()]
        table = torch.zeros(self.number, len(digests), 32, dtype=torch.uint8)
        table[self.rank] = torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).view(-1, 32)
        self.share([table], [np.array([rank]) for rank in range(self.number)])
        for rank, found in enumerate(table):
            for name, own, first in zip(fingerprint, found, table[0], strict=True):
                if not torch.equal(own, first):
                    raise ExperimentError(
                        f"rank {rank} was given another {name} than rank 0; start all with the same files and options"
                    )

    @contextmanager
    def together(self) -> Iterator[None]:
        failure: Exception | None = None
        try:
            yield
        except LostRankError:
            raise
        except Exception as error:
            failure = error
        kind = next((kind for kind, of in _ERRORS.items() if isinstance(failure, of)), "worker")
        told = b"" if failure is None else json.dumps([kind, f"{failure}" or repr(failure)]).encode()
        texts = self._texts(told)
        first = next((rank for rank, text in enumerate(texts) if text), None)
        if failure is not None and (first == self.rank or kind == "worker"):
            raise failure
        if first is not None:
            kind, text = json.loads(texts[first])
            theirs = _ERRORS[kind](text)
            theirs.add_note(ELSEWHERE)
            raise theirs

    def any(self, flag: bool) -> bool:
        table = torch.zeros(self.number, dtype=torch.uint8)
        table[self.rank] = flag
        self.share([table], [np.array([rank]) for rank in range(self.number)])
        return bool(table.any())

    def _texts(self, own: bytes) -> list[bytes]:
        """What each rank says."""
        each = [np.array([rank]) for rank in range(self.number)]
        lengths = torch.zeros(self.number, dtype=torch.int64)
        lengths[self.rank] = len(own)
        self.share([lengths], each)
        if not lengths.any():
            return [b""] * self.number
        texts = torch.zeros(self.number, int(lengths.max()), dtype=torch.uint8)
        texts[self.rank, : len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else 0
        self.share([texts], each)
        return [bytes(row[:length].tolist()) for row, length in zip(texts, lengths.tolist(), strict=True)]

    def share(self, tables: Sequence[Tensor], rows: Sequence[Integers]) -> None:
        own = [table[rows[self.rank]].reshape(-1).view(torch.uint8) for table in tables]
        row_bytes = sum(table[:1].numel() * table.element_size() // max(1, len(table[:1])) for table in tables)
        most = row_bytes * max(map(len, rows))
        if not most:
            return
        packed = torch.zeros(most, dtype=torch.uint8)
        torch.cat(own, out=packed[: row_bytes * len(rows[self.rank])])
        found = [torch.empty_like(packed) for _ in rows]
        with self._answered():
            dist.all_gather(found, packed)
        for rank, theirs in enumerate(found):
            at = 0
            for table in tables:
                shape = (len(rows[rank]), *table.shape[1:])
                length = int(np.prod(shape)) * table.element_size()
                table[rows[rank]] = theirs[at : at + length].clone().view(table.dtype).view(shape)
                at += length

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Callable[[], None]:
        operations = [dist.P2POp(dist.isend, tensor, rank) for rank, tensor in outgoing.items()]
        operations += [dist.P2POp(dist.irecv, tensor, rank) for rank, tensor in incoming.items()]
        if not operations:
            return lambda: None
        with self._answered():
            under_way = dist.batch_isend_irecv(operations)

        def wait() -> None:
            with self._answered():
                for one in under_way:
                    one.wait()

        return wait

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Say what happened if a rank does not answer."""
        try:
            yield
        except RuntimeError as error:
            self._lost(error)

    def _lost(self, error: RuntimeError) -> NoReturn:
        if "imed out" in str(error) or "imeout" in str(error):
            raise LostRankError(
                f"a rank did not answer rank {self.rank} for {self._timeout:g} s; if it is slow and not lost, give a "
                "longer --timeout, and continue with gossamer resume"
            ) from None
        raise LostRankError(
            f"rank {self.rank} has lost another rank ({_first_line(error)}); see what that one says, and continue with "
            "gossamer resume"
        ) from None


def _first_line(error: Exception) -> str:
    """Without the place in gloo's source, and without advice."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line.split("] ", 1)[-1].split(". ")[0][:200]
