"""The tuner plugin as NCCL drives it: its binary interface, version by version, through ctypes.

The structs are declared here a second time on purpose: what the C file says of NCCL's interface is checked
against what this one says.
"""

import ctypes
from contextlib import contextmanager
from ctypes import (
    CFUNCTYPE,
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_size_t,
    c_uint64,
    c_ulong,
    c_void_p,
)

VERSIONS = (2, 3, 4, 5, 6)
ALGOS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOS = ("ll", "ll128", "simple")
BROADCAST, REDUCE, ALLGATHER, REDUCE_SCATTER, ALLREDUCE = range(5)
COLLECTIVES = {"allreduce": ALLREDUCE, "reduce_scatter": REDUCE_SCATTER, "allgather": ALLGATHER}
WARN, INFO = 2, 3

LOGGER = CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)
"""The message of the plugin's calls is its only variable argument."""


class Domains(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("num", "min_ranks", "max_ranks")]


class Constants(ctypes.Structure):
    _fields_ = [
        ("base_latency", c_double * 3 * 7),
        ("hw_latency", c_double * 3 * 7 * 3),
        *((name, c_double * 3 * 4) for name in ("ll_max", "ring_ll128", "tree_ll128", "tree", "nvls_tree")),
    ]


_INIT_OLD = CFUNCTYPE(c_int, c_size_t, c_size_t, LOGGER, POINTER(c_void_p))
_INIT_NEW = CFUNCTYPE(
    c_int,
    POINTER(c_void_p),
    c_uint64,
    c_size_t,
    c_size_t,
    LOGGER,
    POINTER(Domains),
    POINTER(Constants),
)
_COSTS = (POINTER(c_float), c_int, c_int)
_PLACE = POINTER(c_int)
_CHOOSE = {
    2: CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, c_int, c_int, _PLACE, _PLACE, _PLACE),
    3: CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, *_COSTS, _PLACE),
    4: CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, *_COSTS, c_int, _PLACE),
}
_CHOOSE |= {5: _CHOOSE[4], 6: _CHOOSE[4]}


def _struct(version):
    fields = [
        ("name", c_char_p),
        ("init", _INIT_NEW if version >= 5 else _INIT_OLD),
        ("choose", _CHOOSE[version]),
        ("end", CFUNCTYPE(c_int, c_void_p)),
    ]
    if version == 6:
        fields.append(("chunk_size", c_void_p))
    return type(f"Tuner{version}", (ctypes.Structure,), {"_fields_": fields})


def costs_of(unavailable=(), num_algos=7, num_protos=3):
    """NCCL's estimates, all different; -1 where it cannot run a cell."""
    costs = (c_float * (num_algos * num_protos))(*(10.0 + cell for cell in range(num_algos * num_protos)))
    for algo, proto in unavailable:
        costs[ALGOS.index(algo) * num_protos + PROTOS.index(proto)] = -1.0
    return costs


class Communicator:
    """One communicator of NCCL with the plugin in it."""

    def __init__(self, tuner, version, context):
        self._tuner = tuner
        self._version = version
        self._context = context

    def choose(self, collective, message_bytes, costs=None, *, num_algos=7, num_protos=3, channels=0):
        """(algo, proto) that NCCL is made to run, or None; channels; all estimates afterwards."""
        costs = costs_of(num_algos=num_algos, num_protos=num_protos) if costs is None else costs
        before, place = list(costs), c_int(channels)
        if self._version == 2:
            algo, proto = c_int(-1), c_int(-1)
            code = self._tuner.choose(
                self._context, collective, message_bytes, 0, 0, 1, byref(algo), byref(proto), byref(place)
            )
            assert code == 0
            assert (algo.value < 0) == (proto.value < 0)
            return (algo.value >= 0 and (ALGOS[algo.value], PROTOS[proto.value])) or None, place.value, before
        rest = (0,) if self._version >= 4 else ()
        code = self._tuner.choose(
            self._context, collective, message_bytes, 1, costs, num_algos, num_protos, *rest, byref(place)
        )
        assert code == 0
        changed = [cell for cell, (old, new) in enumerate(zip(before, costs, strict=True)) if old != new]
        assert len(changed) <= 1
        assert all(costs[cell] == 0 for cell in changed)
        named = [(ALGOS[cell // num_protos], PROTOS[cell % num_protos]) for cell in changed]
        return (named[0] if named else None), place.value, list(costs)


class Plugin:
    """A library that was built."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.said = []
        self._log = LOGGER(
            lambda level, _, _file, _line, _form, text: self.said.append(
                (level, text.decode(errors="replace"))
            )
        )
        self.constants = Constants()

    def tuner(self, version):
        return _struct(version).in_dll(self.library, f"ncclTunerPlugin_v{version}")

    @contextmanager
    def communicator(self, version, num_ranks=16, num_nodes=2, *, logged=True):
        tuner, context = self.tuner(version), c_void_p(1)
        log = self._log if logged else LOGGER()
        if version >= 5:
            domains = Domains(1, num_ranks, num_ranks)
            code = tuner.init(
                byref(context), 7, num_ranks, num_nodes, log, byref(domains), byref(self.constants)
            )
        else:
            code = tuner.init(num_ranks, num_nodes, log, byref(context))
        assert code == 0
        try:
            yield Communicator(tuner, version, context)
        finally:
            assert tuner.end(context) == 0
