"""A peer that lies: it keeps all the rules, and sends its model turned round and ten times as large."""

from torch import Tensor

from gossamer.cli.main import main
from gossamer.core import Message, Part
from gossamer.training.block import Block

honest = Block.send


def send(self: Block, exchange: int, up: Tensor | None = None) -> Message:
    message = honest(self, exchange, up)
    return {name: Part(-10 * part.values, part.sent) for name, part in message.items()}


if __name__ == "__main__":
    Block.send = send  # type: ignore[method-assign]
    main()
