"""Silk: gossip the signs of the wavelet coefficients that neighbours know least well.

Gossamer's own combination of what the papers teach. From JWINS, the wavelet domain, where a change of the model is
concentrated in few coefficients. From CHOCO, replicas: neighbours keep xh, what they believe T(x) to be, and only the
difference to it is sent, so coarse messages are corrected by later ones. From sign compression with error feedback,
one bit per coefficient and one scale per message. And all nodes begin at the same model, so replicas can too:

    difference = T(x_i - x0) - xh_i;   q_i = mean |d| * sign(d) over the fraction `kept` of largest |d|, else 0
    xh_i <- xh_i + q_i;   x_i <- x_i + rate * T^-1(sum_j w_ij xh_j - xh_i)

A kept coefficient costs its index (about 3.5 bits at 20 %) and one bit. The mean of the models is conserved whatever is
sent. The compressor is a contraction, so CHOCO's theory covers it for a small enough rate; the default is what worked.
"""

from dataclasses import dataclass

from gossamer.algorithms import rates
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.composition import Alias
from gossamer.algorithms.relative_to_init import RelativeToInit
from gossamer.compressors import Chain, Sign, TopK
from gossamer.transforms import Identity, Wavelet


@dataclass(frozen=True)
class Silk(Alias):
    """Signs of the differences that neighbours know least well, in the wavelet domain."""

    kept: float = 0.2  # fraction of the coefficients whose sign is sent
    rate: rates.Rate = 1.0
    family: str = "sym2"  # the wavelet
    levels: int = 4
    wavelet: bool = True  # False: signs of the parameters' own differences

    @property
    def composition(self) -> RelativeToInit:
        transform = Wavelet(self.family, self.levels) if self.wavelet else Identity()
        return RelativeToInit(Choco(Chain(TopK(self.kept), Sign()), self.rate, transform))
