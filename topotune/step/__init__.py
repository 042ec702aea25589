"""The training step: a job's gradients, DDP's buckets, how they overlap with a backward. No torch.

gradients   what a job exchanges, and when each part is ready (a document)
models      such lists of known architectures
buckets     DDP's rule: from caps to buckets
curve       the time of one allreduce by its size, from a plan's rows
timeline    when buckets run, and what of them the backward does not hide
partition   the best buckets of all
projection  the best buckets that DDP's arguments can express
bottleneck  what bounds a step, in words
"""
