"""A peer that sends poison: it keeps all the rules, learns from nobody, and sends its model turned round and so many
times as large, as the environment says; or, if that is "growing", ever larger."""

import os

from torch import Tensor

from gossamer.cli.main import main
from gossamer.core import Inbox, Message, Part
from gossamer.training.block import Block

honest = Block.send


def send(self: Block, exchange: int, up: Tensor | None = None) -> Message:
    message, poison = honest(self, exchange, up), os.environ["POISON"]
    times = 900.0 ** (exchange + 1) if poison == "growing" else float(poison)
    return {name: Part((-times * part.values).clamp(-3e38, 3e38), part.sent) for name, part in message.items()}


def receive(self: Block, exchange: int, inbox: Inbox) -> None:
    """Its own message is poison, too."""


if __name__ == "__main__":
    Block.send, Block.receive = send, receive  # type: ignore[method-assign]
    main()
