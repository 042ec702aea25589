"""Files as they come from hostile or clumsy hands: cut, repeated, changed, mixed, in another encoding."""

import random
from collections.abc import Sequence


def mutated(rng: random.Random, originals: Sequence[bytes], scraps: Sequence[bytes]) -> bytes:
    """One of the originals, changed one to four times; ``scraps`` are what readers may stumble over."""
    data = bytearray(rng.choice(originals))
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.randrange(200))
        match rng.randrange(9):
            case 0:
                del data[start:]
            case 1:
                data[start:start] = data[start:end] * rng.choice([1, 2, 50])
            case 2:
                data[start:end] = b"9" * rng.choice([1, 5, 30, 5000])
            case 3:
                data[start:end] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 20])))
            case 4:
                del data[start:end]
            case 5:
                data[start:start] = rng.choice(scraps)
            case 6:
                lines = data.split(b"\n")
                rng.shuffle(lines)
                data = bytearray(b"\n".join(lines))
            case 7:
                data[start:start] = rng.choice(originals)
            case _:
                data = bytearray(data.decode("latin-1").encode(rng.choice(["utf-16", "utf-16-be", "utf-8"])))
    return bytes(data)
