"""The directed algorithms of the papers, each the push-sum of an undirected one, as the papers put it.

SGP: Assran et al., ICML 2019. Sparse-Push and SCSP: Aketi, Singh, Rabaey, "Sparse-Push: communication- and energy-
efficient decentralized distributed learning over directed and time-varying graphs with non-IID datasets", 2021,
Algorithms 1 and 2. Quant-SGP: Taheri et al., "Quantized decentralized stochastic learning over directed graphs", ICML
2020, Algorithm 1, in CHOCO's form.
"""

from dataclasses import dataclass

from gossamer.algorithms import rates
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.composition import Alias
from gossamer.algorithms.deep_squeeze import DeepSqueeze
from gossamer.algorithms.dpsgd import Dpsgd
from gossamer.algorithms.push_sum import PushSum
from gossamer.compressors import Compressor, TopK
from gossamer.transforms import Identity, Transform


@dataclass(frozen=True)
class Sgp(Alias):
    """Stochastic gradient push: full sharing on directed graphs."""

    @property
    def composition(self) -> PushSum:
        return PushSum(Dpsgd())


@dataclass(frozen=True)
class SparsePush(Alias):
    """Compressed models with error feedback, on directed and time-varying graphs."""

    compressor: Compressor = TopK(0.01)
    rate: rates.Rate = "table"  # eta
    transform: Transform = Identity()

    @property
    def composition(self) -> PushSum:
        return PushSum(DeepSqueeze(self.compressor, self.rate, self.transform))


@dataclass(frozen=True)
class Scsp(Alias):
    """Sparse-Push for most of the run, then some rounds of full sharing without training."""

    compressor: Compressor = TopK(0.01)
    rate: rates.Rate = "table"  # eta
    transform: Transform = Identity()
    full_rounds: int = 40  # k

    @property
    def composition(self) -> PushSum:
        return PushSum(DeepSqueeze(self.compressor, self.rate, self.transform, self.full_rounds))


@dataclass(frozen=True)
class QuantSgp(Alias):
    """CHOCO's compressed differences on directed graphs."""

    compressor: Compressor = TopK(0.1)
    rate: rates.Rate = "auto"  # gamma
    transform: Transform = Identity()

    @property
    def composition(self) -> PushSum:
        return PushSum(Choco(self.compressor, self.rate, self.transform))
