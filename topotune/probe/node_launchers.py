"""Launchers that start one process on each node: Kubernetes, SageMaker, Azure ML, TF_CONFIG.

Node 0 serves the rendezvous and has rank 0. Each platform says which node that is; SageMaker's by the order
of its hosts, TF_CONFIG's by its chief, or first worker.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from topotune.documents import parse_json, read_bytes
from topotune.errors import InputFileError
from topotune.probe.faults import shown
from topotune.probe.membership import DEFAULT_MASTER_PORT, TITLES, PerNode
from topotune.probe.variables import MAX_NODES, MAX_RANKS, Variables, check_below

RESOURCE_CONFIG: Final = "opt/ml/input/config/resourceconfig.json"
_SAGEMAKER_PORT: Final = 7777  # where SageMaker's own torchrun meets
_MAX_CONFIG_BYTES: Final = 2**20
_TORCHRUN_WORDS: Final = ("auto", "gpu", "cpu")
_ELASTIC: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


def read_node(environment: Mapping[str, str], root: Path, num_local_ranks: int | None) -> PerNode | None:
    """The node that a per-node launcher says this is; None without one.

    Args:
        environment: all variables of this process.
        root: the folder that holds SageMaker's file.
        num_local_ranks: what the user asked for on each node.

    Raises:
        UsageError: half-set, contradictory or ambiguous variables.
    """
    kubernetes = Variables(environment, TITLES["kubernetes"])
    if kubernetes.has("PET_NNODES") or kubernetes.has("PET_NODE_RANK"):
        return _read_pet(kubernetes)
    sagemaker = Variables(environment, TITLES["sagemaker"])
    config = _read_config(root)
    if sagemaker.has("SM_HOSTS") or sagemaker.has("SM_CURRENT_HOST") or config is not None:
        return _read_sagemaker(sagemaker, config, str(root / RESOURCE_CONFIG))
    azure = Variables(environment, TITLES["azureml"])
    if azure.has("NODE_RANK", "MASTER_ADDR") and _on_azure(azure):
        return _read_azure(azure)
    tensorflow = Variables(environment, TITLES["tensorflow"])
    if tensorflow.has("TF_CONFIG"):
        return _read_tf_config(tensorflow)
    return _read_pods(Variables(environment, TITLES["pods"]), num_local_ranks)


def read_interface(environment: Mapping[str, str], root: Path) -> str | None:
    """The network interface that the platform names: SageMaker's, by variable or file.

    Raises:
        UsageError: it cannot be one.
    """
    variables = Variables(environment, TITLES["sagemaker"])
    text: Any = variables.text("SM_NETWORK_INTERFACE_NAME")
    if text is not None:
        return variables.interface(text, "SM_NETWORK_INTERFACE_NAME")
    text = (_read_config(root) or {}).get("network_interface_name")
    return None if text is None else variables.interface(text, str(root / RESOURCE_CONFIG))


def _read_pet(variables: Variables) -> PerNode:
    text = variables.text("PET_NNODES") or ""
    if _ELASTIC.fullmatch(text):
        low, _, high = text.partition(":")
        if int(low) != int(high) or int(low) > MAX_NODES:
            variables.refuse(
                f"PET_NNODES={text}: the number of nodes is not fixed",
                hint="torchrun --no-python topotune … takes its nodes from PET_* and the rendezvous there",
            )
        num_nodes = int(low)
    else:
        num_nodes = variables.need_whole("PET_NNODES", maximum=MAX_NODES)
    node_index = variables.whole("PET_NODE_RANK", maximum=MAX_NODES)
    if num_nodes > 1:
        missing = [name for name in ("PET_NODE_RANK", "PET_MASTER_ADDR") if not variables.has(name)]
        if missing:
            variables.refuse_half(missing)
    check_below(variables, "PET_NODE_RANK", node_index or 0, "PET_NNODES", num_nodes, "a node's number")
    ranks: int | str | None = variables.text("PET_NPROC_PER_NODE")
    if ranks is not None and ranks not in _TORCHRUN_WORDS:
        ranks = variables.need_whole("PET_NPROC_PER_NODE", maximum=MAX_RANKS)
    return PerNode(
        launcher="kubernetes",
        node_index=node_index or 0,
        num_nodes=num_nodes,
        master_address=variables.host("PET_MASTER_ADDR") or "127.0.0.1",
        master_port=variables.port("PET_MASTER_PORT") or DEFAULT_MASTER_PORT,
        ranks_per_node=ranks,
    )


def _read_config(root: Path) -> dict[str, Any] | None:
    """SageMaker's resourceconfig.json; None where there is none.

    Raises:
        InputFileError: it is there and no JSON object.
    """
    path = root / RESOURCE_CONFIG
    if not path.exists():
        return None
    config = parse_json(read_bytes(path, max_bytes=_MAX_CONFIG_BYTES), str(path)).raw
    if not isinstance(config, dict):
        raise InputFileError(path, "is no JSON object", hint="TOPOTUNE_LAUNCHER=alone ignores launchers")
    return config


def _read_sagemaker(variables: Variables, config: dict[str, Any] | None, path: str) -> PerNode:
    """Hosts and this one, by SM_* or the file, which must not contradict each other."""
    by_variable = variables.json("SM_HOSTS")
    by_file = None if config is None else config.get("hosts")
    current_by_file = None if config is None else config.get("current_host")
    missing = [
        name
        for name, given in (("SM_HOSTS", by_variable or by_file), ("SM_CURRENT_HOST", current_by_file))
        if not given and not variables.has(name)
    ]
    if missing:
        variables.refuse_half(missing)
    place = "SM_HOSTS" if by_variable is not None else path
    hosts = variables.hosts(by_file if by_variable is None else by_variable, place)
    if by_variable is not None and by_file is not None and set(hosts) != set(variables.hosts(by_file, path)):
        variables.refuse(f"SM_HOSTS has {shown(', '.join(hosts))} and {path} {shown(', '.join(by_file))}")
    current = variables.host("SM_CURRENT_HOST") or variables.check_host(current_by_file, path)
    if current_by_file is not None and current != current_by_file:
        variables.refuse(f"SM_CURRENT_HOST={shown(current)} and {path} has {shown(str(current_by_file))}")
    if current not in hosts:
        variables.refuse(f"SM_CURRENT_HOST={shown(current)} is not among the hosts of {place}")
    return PerNode(
        launcher="sagemaker",
        node_index=hosts.index(current),
        num_nodes=len(hosts),
        master_address=hosts[0],
        master_port=_SAGEMAKER_PORT,
        ranks_per_node=variables.whole("SM_NUM_GPUS", maximum=MAX_RANKS) or None,
    )


def azure_process_per_node(environment: Mapping[str, str]) -> bool:
    """Azure ML started one process on each node, in the environment of a rank each.

    Its jobs do that for a launcher on each node (``process_count_per_instance: 1``), and for ranks alike.
    """
    azure = Variables(environment, TITLES["azureml"])
    if not _on_azure(azure) or not azure.has("NODE_RANK", "RANK", "LOCAL_RANK", "MASTER_ADDR"):
        return False
    num_nodes = _num_azure_nodes(azure)
    return (
        azure.text("RANK") == azure.text("NODE_RANK")
        and azure.whole("LOCAL_RANK", maximum=MAX_RANKS) == 0
        and num_nodes in (None, azure.whole("WORLD_SIZE", maximum=MAX_RANKS))
    )


def _on_azure(variables: Variables) -> bool:
    return any(
        variables.has(name) for name in ("AZUREML_RUN_ID", "AZUREML_EXPERIMENT_ID", "AZ_BATCH_HOST_LIST")
    )


def _num_azure_nodes(variables: Variables) -> int | None:
    count = variables.whole("AZUREML_NODE_COUNT", maximum=MAX_NODES)
    hosts = variables.text("AZ_BATCH_HOST_LIST")
    if hosts is None:
        return count
    num_hosts = len(hosts.split(","))
    if count not in (None, num_hosts):
        variables.refuse(f"AZUREML_NODE_COUNT={count} and AZ_BATCH_HOST_LIST has {num_hosts} hosts")
    return num_hosts


def _read_azure(variables: Variables) -> PerNode:
    node_index = variables.need_whole("NODE_RANK", maximum=MAX_NODES)
    num_nodes, name = _num_azure_nodes(variables), "the number of nodes"
    if num_nodes is None:
        # One process on each node is then all that WORLD_SIZE can count.
        num_nodes, name = variables.need_whole("WORLD_SIZE", maximum=MAX_NODES), "WORLD_SIZE"
        rank = variables.whole("RANK", maximum=MAX_RANKS)
        if rank not in (None, node_index):
            variables.refuse(
                f"RANK={rank} and NODE_RANK={node_index}, and neither LOCAL_RANK nor AZUREML_NODE_COUNT"
            )
    check_below(variables, "NODE_RANK", node_index, name, num_nodes, "a node's number")
    return PerNode(
        launcher="azureml",
        node_index=node_index,
        num_nodes=num_nodes,
        master_address=variables.need_host("MASTER_ADDR"),
        master_port=variables.port("MASTER_PORT") or DEFAULT_MASTER_PORT,
    )


def _read_tf_config(variables: Variables) -> PerNode:
    """TF_CONFIG's chief and workers, in this order, are the nodes."""
    config = variables.json("TF_CONFIG")
    cluster = config.get("cluster") if isinstance(config, dict) else None
    task = config.get("task") if isinstance(config, dict) else None
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        variables.refuse("TF_CONFIG has no objects cluster and task")
    kind, index = task.get("type"), task.get("index")
    members: list[tuple[str, int]] = []
    addresses: list[str] = []
    for name in ("chief", "master", "worker"):
        listed = cluster.get(name, [])
        if not isinstance(listed, list) or len(listed) > MAX_NODES:
            variables.refuse(f"TF_CONFIG: cluster.{name} is no list of up to {MAX_NODES} addresses")
        members += [(name, number) for number in range(len(listed))]
        addresses += listed
    if kind not in ("chief", "master", "worker"):
        variables.refuse(
            f"TF_CONFIG: this is a task of type {shown(str(kind))}",
            hint="allreduce runs among chief and workers; start topotune there alone",
        )
    if type(index) is not int or (kind, index) not in members:
        variables.refuse(f"TF_CONFIG: {kind} {shown(str(index))} is not among the {kind}s of its cluster")
    if len(set(map(str, addresses))) < len(addresses):
        variables.refuse("TF_CONFIG: cluster has an address twice")
    checked = [
        variables.host_and_port(address, f"TF_CONFIG: cluster.{name}[{number}]")
        for address, (name, number) in zip(addresses, members, strict=True)
    ]
    address, port = checked[0]
    return PerNode(
        launcher="tensorflow",
        node_index=members.index((kind, index)),
        num_nodes=len(members),
        master_address=address,
        master_port=port,
    )


def _read_pods(variables: Variables, num_local_ranks: int | None) -> PerNode | None:
    """MASTER_ADDR, WORLD_SIZE and a number without LOCAL_RANK: of pods (PyTorchJob v1), if that is said.

    Raises:
        UsageError: nothing says whether WORLD_SIZE counts pods or ranks.
    """
    number = next((name for name in ("RANK", "NODE_RANK") if variables.has(name)), None)
    if number is None or not variables.has("MASTER_ADDR", "WORLD_SIZE"):
        return None
    size = variables.need_whole("WORLD_SIZE", maximum=MAX_RANKS)
    index = variables.need_whole(number, maximum=MAX_RANKS)
    check_below(variables, number, index, "WORLD_SIZE", size, "a number")
    if size == 1:
        return None
    other = variables.whole("NODE_RANK", maximum=MAX_RANKS)
    if other is not None and other != index:
        variables.refuse(f"RANK={index} and NODE_RANK={other} without LOCAL_RANK")
    if num_local_ranks is None:
        variables.refuse(
            f"LOCAL_RANK is not set, so that {number}={index} and WORLD_SIZE={size} may number ranks or pods",
            hint="--nproc-per-node N starts N ranks in each pod; where they number ranks, set LOCAL_RANK too",
        )
    return PerNode(
        launcher="pods",
        node_index=index,
        num_nodes=size,
        master_address=variables.need_host("MASTER_ADDR"),
        master_port=variables.port("MASTER_PORT") or DEFAULT_MASTER_PORT,
    )
