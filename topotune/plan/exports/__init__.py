"""A plan in the terms of other programs: one module for each, with a `Target`, and its line in `catalog`."""

from topotune.lazy import lazy_attributes

__all__ = ["BaseFile", "ExportOptions", "Target", "Translated", "find_target", "targets"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "BaseFile": "topotune.plan.exports.target",
        "ExportOptions": "topotune.plan.exports.target",
        "Target": "topotune.plan.exports.target",
        "Translated": "topotune.plan.exports.target",
        "find_target": "topotune.plan.exports.catalog",
        "targets": "topotune.plan.exports.catalog",
    },
)
