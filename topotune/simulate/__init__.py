"""Predicted times of schedules and of the library's own collectives on fitted links."""

from topotune.simulate.native import predict_candidate
from topotune.simulate.prediction import predict

__all__ = ["predict", "predict_candidate"]
