"""TCP proxies on this machine that delay, slow, break and cut connections: a bad network between peers."""

import asyncio
import random
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

PIECE = 64 * 1024
RETRANSMIT_SECONDS = 0.2  # the least that Linux waits for an acknowledgement


@dataclass
class Uplink:
    """What one peer's connections to others share: what they carry leaves one piece after the other."""

    bits_per_second: float
    free_at: float = 0.0  # by time.monotonic

    def leaves_at(self, num_bytes: int) -> float:
        self.free_at = max(self.free_at, time.monotonic()) + 8 * num_bytes / self.bits_per_second
        return self.free_at


@dataclass
class Weather:
    """What happens to the connections of one proxy; may be changed at any time."""

    delay_seconds: float = 0.0
    break_probability: float = 0.0  # of a connection, for every piece of data on it
    loss_probability: float = 0.0  # of a piece of data, which TCP then retransmits: it and all behind it come late
    uplink: Uplink | None = None  # of the peer that connects; what comes back is not slowed
    cut: bool = False  # nothing passes, and no one is told
    num_bytes: int = 0  # that have passed
    num_broken: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)


class Proxies:
    """Any number of proxies in one thread."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Proxies":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def add(self, target: int) -> tuple[int, Weather]:
        """A proxy in front of a port: its own port, and its weather."""
        weather = Weather()

        async def serve() -> int:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._connect(reader, writer, target, weather)

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10), weather

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, weather: Weather
    ) -> None:
        weather.writers.add(writer)
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            weather.writers.discard(writer)
            return
        weather.writers.add(there)
        ways = [self._carry(reader, there, weather, weather.uplink), self._carry(there_reader, writer, weather, None)]
        await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, there):
            end.transport.abort()
            weather.writers.discard(end)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, weather: Weather, uplink: Uplink | None
    ) -> None:
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def deliver() -> None:
            while True:
                due, piece = await line.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                while weather.cut:
                    await asyncio.sleep(0.05)
                writer.write(piece)
                weather.num_bytes += len(piece)
                await writer.drain()

        delivery = asyncio.ensure_future(deliver())
        try:
            while piece := await reader.read(PIECE):
                if self._random.random() < weather.break_probability:
                    weather.num_broken += 1
                    return
                leaves = time.monotonic() if uplink is None else uplink.leaves_at(len(piece))
                lost = self._random.random() < weather.loss_probability
                await line.put((leaves + weather.delay_seconds + lost * RETRANSMIT_SECONDS, piece))
                if delivery.done():
                    return
        except OSError:
            return
        finally:
            delivery.cancel()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
