"""Lines of progress on a stream that is read, by a clock that is set."""

import io


class Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(line, total=100, examples=24, every=0.0, **more):
    """A line of the kind given, its stream and its clock."""
    stream, clock = more.pop('stream', io.StringIO()), Clock()
    made = line(
        'gan', total, examples, every_seconds=every, stream=stream, clock=clock, **more
    )
    return made, stream, clock
