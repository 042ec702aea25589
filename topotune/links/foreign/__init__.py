"""Other tools' benchmark outputs → `Measurement`: a module for each tool, recognised by what is in the file.

``read_measurement`` reads and joins; ``benchmarks_among`` says which files are for it. A new tool is one
module with a `FigureReader`, and its line in `catalog`. None of it needs torch.
"""

from topotune.lazy import lazy_attributes

__all__ = ["benchmarks_among", "read_measurement"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "benchmarks_among": "topotune.links.foreign.importing",
        "read_measurement": "topotune.links.foreign.importing",
    },
)
