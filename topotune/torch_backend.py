"""What torch loads at ``import torch`` (entry point ``torch.backends``): it registers the name, and imports nothing more."""


def register() -> None:
    """Make ``dist.init_process_group("topotune")`` known to torch."""
