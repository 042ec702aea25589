"""Other tools' files ↔ `Topology`: one module for each format, recognised by what is in the file.

``read_files`` reads and joins; ``is_capture`` says whether a file is for it; ``export_topology`` writes. A
new format is one module with a `Reader`, and its line in `catalog`.
"""

from topotune.lazy import lazy_attributes

__all__ = ["export_topology", "is_capture", "read_files"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "is_capture": "topotune.topology.formats.importing",
        "read_files": "topotune.topology.formats.importing",
        "export_topology": "topotune.topology.formats.exporting",
    },
)
