"""What exports for MPI libraries must look like; run as a script it writes the golden files anew."""

from pathlib import Path

from mpi_plans import plan_of

from topotune.plan.exports import BaseFile, ExportOptions, find_target

FOLDER = Path(__file__).parent / "golden"
NODES = [[0, 1], [2, 3]]
PLAN = plan_of(
    ("recursive_doubling", 8192),
    ("default", 65536),
    ("halving_doubling", 2**20),
    ("ring", 2**24, {"channels": 2}),
    ("hierarchical", None, {"groups": NODES}),
    ranks_per_node=(2, 2),
)
# Made up for these tests: of MPICH's own tree only the shape matters.
OWN_SELECTION = b"""{
 "collective=barrier": {"comm_type=intra": {"algorithm=MPIR_Barrier_intra_own": {}}},
 "collective=allreduce": {
  "comm_type=intra": {"avg_msg_size<=9": {"algorithm=MPIR_Allreduce_intra_small": {}},
                      "avg_msg_size=any": {"algorithm=MPIR_Allreduce_intra_large": {}}},
  "comm_type=inter": {"algorithm=MPIR_Allreduce_inter_own": {}}}}
"""
OWN_COMPOSITIONS = b"""{
 "collective=allreduce": {"comm_type=intra": {"composition=MPIDI_Allreduce_intra_composition_own": {}}}}
"""
BASES = {"mpich-json": OWN_SELECTION, "mpich-ch4-json": OWN_COMPOSITIONS}
FILES = {
    "openmpi-4.1-tuned.conf": ("openmpi-tuned", "4.1"),
    "openmpi-6.0-tuned.json": ("openmpi-tuned", "6.0"),
    "openmpi-4.1-han.conf": ("openmpi-han", "4.1"),
    "openmpi-5.0-han.conf": ("openmpi-han", "5.0"),
    "mpich-algorithms.json": ("mpich-json", None),
    "mpich-compositions.json": ("mpich-ch4-json", None),
    "intel-mpi.sh": ("intel-mpi", None),
    "ucc.conf": ("ucc", None),
}


def options(name, version=None):
    base = BaseFile(source="own.json", data=BASES[name]) if name in BASES else None
    return ExportOptions(version=version, base=base)


def exported(name, version=None, plan=PLAN):
    target = find_target(name)
    return target.write(target.from_plan(plan, options(name, version)).document)


if __name__ == "__main__":
    for file, (target_name, target_version) in FILES.items():
        (FOLDER / file).write_text(exported(target_name, target_version))
