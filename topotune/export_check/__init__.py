"""Whether another program does what an export says: it is run, and watched."""

from topotune.lazy import lazy_attributes

__all__ = ["Observation", "Verification", "find_check", "verification_to_json"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Observation": "topotune.export_check.verification",
        "Verification": "topotune.export_check.verification",
        "find_check": "topotune.export_check.catalog",
        "verification_to_json": "topotune.export_check.verification",
    },
)
