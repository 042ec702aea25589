"""Collectives of CPU tensors through the memory that ranks of a node share."""
