"""A peer that lies: it keeps all the rules, and sends its model turned round and ten times as large."""

from torch import Tensor

from gossamer.cli.main import main
from gossamer.core import Message, Part
from gossamer.training.block import Block

honest = Block.outgoing


def outgoing(self: Block, number: int, up: Tensor | None = None) -> tuple[Message, Tensor]:
    message, losses = honest(self, number, up)
    return {name: Part(-10 * part.values, part.sent) for name, part in message.items()}, losses


if __name__ == "__main__":
    Block.outgoing = outgoing  # type: ignore[method-assign]
    main()
