"""Streams and events of the device "tern", as torch.cuda.streams has them.

A device is one queue in order. A stream is a label on it, so work on two streams never overlaps and nothing has to be ordered; an event is a position in the queue, and
knows when the device came there. Recording an event costs nothing, except with enable_timing: then a program ends there, so that there is a time to tell."""
from typing import Any

import torch

from torch_tern.current import _Device, _index
from torch_tern.errors import coded

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


class Stream(torch.Stream):
    """Stream(device=None, priority=0): a new stream of the device (a torch.device, its number or name; the current one where none is given). Priorities are all alike."""

    def __new__(cls, device: _Device = None, priority: int = 0, **ids: int) -> "Stream":
        if ids:  # stream_id, device_index, device_type: an existing stream
            return super().__new__(cls, **ids)
        return super().__new__(cls, device=torch.device("tern", _index(device)), priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority there is."""
        return 0, 0

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records the event (a new one where none is given) behind everything recorded up to now; gives it back."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch.tern.Stream device={self.device} stream_id={self.stream_id}>"


class _EventOfTern(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tern"


class Event(metaclass=_EventOfTern):
    """Event(enable_timing=False, blocking=False, interprocess=False): a position in a device's queue.

    record() marks everything recorded up to now; query() says whether the device is past it, and never waits; synchronize() waits; a.elapsed_time(b) gives milliseconds between
    two events made with enable_timing=True that the device is past. wait() orders streams, which in one queue is nothing to do.

    What is made is a torch.Event: elapsed_time() and Stream.record_event() take nothing else, no subclass either."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:  # type: ignore[misc]
        if interprocess:
            raise NotImplementedError(
                coded("TERN-UNSUPPORTED", "a tern event is known to its own process only: wait here and tell the other process by torch.multiprocessing.Event")
            )
        return torch.Event(device="tern", enable_timing=enable_timing, blocking=blocking)


def _as_ours(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: _Device = None) -> Stream:
    return _as_ours(torch._C._accelerator_getStream(_index(device)))


def default_stream(device: _Device = None) -> Stream:
    """Stream 0, which a device begins with."""
    return Stream(stream_id=0, device_index=_index(device), device_type=current_stream(device).device_type)


def set_stream(stream: torch.Stream) -> None:
    """Makes the stream the current one of its device, and its device the current one. None: nothing happens."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Makes a stream, and its device, the current ones for the length of a `with`. None: nothing happens."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exception: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exception)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)
