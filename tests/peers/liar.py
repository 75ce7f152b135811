"""A peer that lies about its round: it trains and sends as it should, says in every heartbeat that it is far ahead, and
hands a state of its choice to whoever believes it."""

import torch

from gossamer.cli.main import main
from gossamer.peers.grpc.protocol import Heartbeat
from gossamer.peers.grpc.transport import GrpcTransport
from gossamer.peers.state_transfer import StateTransfer

LIE = 7.0  # every number of the state
honest = GrpcTransport.heartbeat_for


def heartbeat_for(self: GrpcTransport, node: int) -> Heartbeat:
    return honest(self, node)._replace(round=self.exchanges_in_all - 1)


def frame_for(self: StateTransfer, receiver: int, exchange: int | None) -> bytes:
    state = {name: torch.full_like(tensor, LIE) for name, tensor in self._node.tensors().items()}
    return self._codec.encode(state, self._node.me, self._node.experiment.rounds - 1)


if __name__ == "__main__":
    GrpcTransport.heartbeat_for = heartbeat_for  # type: ignore[method-assign]
    StateTransfer.frame_for = frame_for  # type: ignore[method-assign]
    main()
