"""Settings that would harm a job are never written, whatever the plan: one test for each known trap."""

import json
import re
import subprocess

import export_plans
import pytest
import yaml
from export_plans import PLANS, STACKS, gpu_document, make, text_of, warnings_of

from topotune.errors import InputFileError, UsageError
from topotune.plan.exports import (
    ExportOptions,
    Target,
    Translated,
    catalog,
    find_target,
    job_environment,
    xla,
)

OF_NCCL = {
    "NCCL_PROTO": "LL128",
    "NCCL_ALGO": "allreduce:tree",
    "NCCL_SOCKET_IFNAME": "=eth0",
    "NCCL_MAX_CTAS": "4",
    "NCCL_BUFFSIZE": "1",
    "FI_PROVIDER": "tcp",
    "RDMAV_FORK_SAFE": "1",
}


@pytest.fixture(autouse=True)
def _only_stacks(monkeypatch):
    monkeypatch.setattr(catalog, "MODULES", export_plans.only_stacks())


# PyTorch and Accelerate


def test_an_explicit_25_is_kept_apart_from_ddps_default_of_a_first_bucket_of_1():
    assert json.loads(text_of("torch", make(gpu_document(25))))["ddp"] == {"bucket_cap_mb": 25}
    assert json.loads(text_of("torch", PLANS["default"]))["ddp"] == {}


def test_a_list_never_stands_beside_a_single_size_which_it_would_override():
    ddp = json.loads(text_of("torch", PLANS["cpu"]))["ddp"]
    assert ddp == {"bucket_cap_mb_list": [1, 25]}
    both = text_of("torch", PLANS["cpu"]).replace('"ddp": {', '"ddp": { "bucket_cap_mb": 1,')
    with pytest.raises(InputFileError, match="has both bucket_cap_mb and bucket_cap_mb_list"):
        find_target("torch").read(both, "file")


@pytest.mark.parametrize(
    ("version", "is_known"), [("2.4", False), ("2.10", False), ("2.11", True), ("2.13", True)]
)
def test_an_older_torch_gets_no_list_which_it_would_refuse(version, is_known):
    options = ExportOptions(version=version)
    ddp = json.loads(text_of("torch", PLANS["cpu"], options))["ddp"]
    assert ddp == ({"bucket_cap_mb_list": [1, 25]} if is_known else {})
    lost = f"DDP of torch {version} takes one bucket size and the plan has 2 (1, 25 MiB)"
    assert is_known != any(lost in sentence for sentence in warnings_of("torch", PLANS["cpu"], options))


def test_accelerate_is_not_given_its_own_default_which_it_would_not_hand_on():
    cap = json.loads(text_of("accelerate", make(gpu_document(25))))["bucket_cap_mb"]
    assert cap != 25
    assert int(cap * 2**20) == 25 * 2**20
    with pytest.raises(InputFileError, match="is 25, which Accelerate does not hand on to DDP"):
        find_target("accelerate").read('{"bucket_cap_mb": 25}\n', "file")


# Horovod


def test_horovods_file_counts_mebibytes_and_its_environment_bytes():
    assert yaml.safe_load(text_of("horovod", PLANS["gpu"]))["params"]["fusion_threshold_mb"] == 32.5
    assert f"HOROVOD_FUSION_THRESHOLD={int(32.5 * 2**20)}\n" in text_of("horovod-env", PLANS["gpu"])


@pytest.mark.parametrize("cap", [1e-9, 1e-7, 2**-20])
def test_a_tiny_bucket_does_not_end_all_fusion(cap):
    assert (
        text_of("horovod-env", make(gpu_document(cap, two_level_from=None))) == "HOROVOD_FUSION_THRESHOLD=1\n"
    )
    assert yaml.safe_load(text_of("horovod", make(gpu_document(cap))))["params"]["fusion_threshold_mb"] > 0


def test_horovods_file_is_never_empty_which_its_reader_fails_on():
    assert yaml.safe_load(text_of("horovod", PLANS["default"])) == {"params": {}}


@pytest.mark.parametrize(
    ("plan", "version", "is_written"),
    [
        (PLANS["gpu"], "0.28", True),
        (PLANS["gpu"], "0.26", True),
        (PLANS["gpu"], "0.25", False),
        (PLANS["cpu"], "0.28", False),
        (make(gpu_document(8, two_level_from=9 * 2**20)), "0.28", False),
        (make(gpu_document(two_level_from=2**27)), "0.28", True),
        (make(gpu_document(two_level_from=2**27 + 1)), "0.28", False),
        (make(gpu_document(8, two_level_from=None)), "0.28", False),
    ],
    ids=["gpu", "first", "older", "gloo", "beyond the buffer", "its own buffer", "beyond that", "default"],
)
def test_torus_is_written_only_where_nccl_was_measured_so_and_the_version_has_it(plan, version, is_written):
    options = ExportOptions(version=version)
    assert ("torus_allreduce: true" in text_of("horovod", plan, options)) == is_written
    assert ("HOROVOD_TORUS_ALLREDUCE=1" in text_of("horovod-env", plan, options)) == is_written


@pytest.mark.parametrize("change", ["gloo", "order of ranks", "one node", "unequal nodes"])
def test_two_levels_of_others_are_not_nccls(change):
    document = gpu_document(32)
    hard = document["fingerprint"]["hard"]
    if change == "gloo":
        hard |= {"backend": "gloo", "collective_library": "gloo (torch 2.13)"}
    elif change == "order of ranks":
        document["rank_order"] = [0, 1, 3, 2]
    elif change == "one node":
        hard["ranks_per_node"] = [4]
    else:
        hard["ranks_per_node"] = [3, 1]
    assert "torus" not in text_of("horovod", make(document))
    assert xla.TWO_LEVEL not in text_of("xla", make(document))


def test_two_levels_that_are_not_the_nodes_are_none_for_other_programs():
    document = gpu_document(32)
    document["groups"][0]["allreduce"][1]["params"] = {"groups": [[0, 2], [1, 3]]}
    assert "torus" not in text_of("horovod", make(document))
    assert xla.TWO_LEVEL not in text_of("xla", make(document))


@pytest.mark.parametrize("name", PLANS)
def test_nothing_is_set_that_no_plan_measures(name):
    words = ("hierarchical", "cycle", "autotun", "cache_capacity", "overlap", "timeout", "num_buckets")
    for target in STACKS:
        text = text_of(target, PLANS[name]).replace("${HOROVOD_AUTOTUNE-}", "").lower()  # read there, not set
        assert not any(word in text for word in words), target


# DeepSpeed, Megatron-LM: elements, not bytes


@pytest.mark.parametrize(("dtype", "size"), [(None, 2), ("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_deepspeed_counts_elements_and_has_no_key_for_stage_0(dtype, size):
    document = json.loads(text_of("deepspeed", make(gpu_document(8)), ExportOptions(dtype=dtype)))
    assert document == {"zero_optimization": {"reduce_bucket_size": 8 * 2**20 // size}}
    assert any("stage 0 has a fixed size" in sentence for sentence in warnings_of("deepspeed", PLANS["gpu"]))


@pytest.mark.parametrize(("dtype", "size"), [(None, 4), ("bf16", 2), ("fp32", 4)])
def test_megatron_counts_parameters(dtype, size):
    text = text_of("megatron", make(gpu_document(8)), ExportOptions(dtype=dtype))
    assert text == f"--ddp-bucket-size {8 * 2**20 // size}\n"


@pytest.mark.parametrize("target", ["deepspeed", "megatron"])
def test_a_bucket_holds_at_least_one_element_and_of_a_known_type(target):
    assert " 1" in text_of(target, make(gpu_document(1e-9)))
    with pytest.raises(UsageError, match="--dtype int8: no such type of gradients"):
        text_of(target, PLANS["gpu"], ExportOptions(dtype="int8"))


# TensorFlow


def test_tensorflow_gets_no_0_which_means_automatic_and_keeps_its_cluster():
    assert json.loads(text_of("tensorflow", make(gpu_document(1e-9)))) == {"bytes_per_pack": 1}
    for name, plan in PLANS.items():
        assert "TF_CONFIG" not in text_of("tensorflow", plan), name


# XLA


@pytest.mark.parametrize("version", [None, "0.5", "0.6", "0.7", "0.8", "0.9", "0.10"])
def test_only_flags_that_the_version_knows_are_written(version):
    text = text_of("xla", PLANS["gpu"], ExportOptions(version=version))
    flags = set(re.findall(r"--(\w+)", text))
    oldest = tuple(map(int, (version or "0.5").split(".")))
    assert flags <= {name for name, since in xla.KNOWN_SINCE.items() if since <= oldest}
    assert (xla.FIGURES in flags) == (version not in (None, "0.5"))


def test_a_flag_that_no_version_knows_is_refused():
    text = text_of("xla", PLANS["gpu"]).replace("combine_threshold", "combine_treshold")
    with pytest.raises(InputFileError, match="which no version is known to have"):
        find_target("xla").read(text, "file")


def test_figures_for_xla_are_gigabytes_per_second_and_whole_microseconds():
    options = ExportOptions(version="0.10")
    assert f"--{xla.FIGURES}=nic_speed_gbps=21.500,rtt_us=30,gpus_per_node=2 " in text_of(
        "xla", PLANS["gpu"], options
    )
    document = gpu_document()
    document["links"] = [export_plans.BETWEEN_NODES | {"latency_s": 1e-8}]
    assert "rtt_us=1," in text_of("xla", make(document), options)
    document["links"] = [export_plans.BETWEEN_NODES | {"bandwidth_bytes_per_s": 1.0}]
    assert xla.FIGURES not in text_of("xla", make(document), options)


def test_figures_of_another_library_or_of_several_classes_are_not_xlas():
    options = ExportOptions(version="0.10")
    document = gpu_document(8)
    document["links"] = [export_plans.BETWEEN_NODES | {"name": f"between nodes {name}"} for name in "ab"]
    assert xla.FIGURES not in text_of("xla", make(document), options)
    assert any("knows one class of links" in said for said in warnings_of("xla", make(document), options))
    assert text_of("xla", PLANS["cpu"], options) == "# no XLA flags to set\n"


def test_the_users_own_xla_flags_stand_last_and_so_win(tmp_path):
    script = tmp_path / "flags.sh"
    script.write_text(text_of("xla", PLANS["gpu"]))
    shown = shell(f'. {script}; echo "$XLA_FLAGS"', XLA_FLAGS=f"--{xla.COMBINE}=7")
    assert shown.startswith("--xla_")
    assert shown.endswith(f" --{xla.COMBINE}=7\n")
    assert shell(f'set -u; . {script}; echo "$XLA_FLAGS"').startswith("--xla_")


# SageMaker


def target_of(variables: dict[str, str]) -> Target:
    return Target(
        name="of-a-test",
        summary="a target that is environment only",
        versions="Test 1 to 2",
        from_plan=lambda plan, options: Translated(document=variables),
        write=str,
        read=lambda text, source: text,
        environment=lambda document: document,
        how_to_use=str,
    )


def test_variables_that_sagemakers_launchers_override_are_never_written(monkeypatch):
    monkeypatch.setattr(job_environment, "targets", lambda: (target_of(OF_NCCL),))
    for name in ("cpu", "default", "gpu"):
        text = text_of("sagemaker", PLANS[name])
        assert not any(variable in text for variable in OF_NCCL)
        said = warnings_of("sagemaker", PLANS[name])
        assert any(sentence.startswith("FI_PROVIDER, NCCL_ALGO, NCCL_BUFFSIZE, ") for sentence in said)
    assert "NCCL_PROTO" in text_of("kubernetes", PLANS["gpu"])  # where it is the job's to say


def test_values_that_would_be_several_options_of_mpirun_are_not_written(monkeypatch):
    variables = {"A_RULE": "1 -x LD_PRELOAD=b", "ANOTHER": "1;2", "PLAIN": "1:0-64"}
    monkeypatch.setattr(job_environment, "targets", lambda: (target_of(variables),))
    document = json.loads(text_of("sagemaker", PLANS["default"]))
    assert document["environment"] == {"PLAIN": "1:0-64"}
    assert document["distribution"]["mpi"]["custom_mpi_options"] == "-x PLAIN=1:0-64"
    said = warnings_of("sagemaker", PLANS["default"])
    assert [sentence.split(":")[0] for sentence in said[:2]] == ["A_RULE", "ANOTHER"]


@pytest.mark.parametrize("variable", OF_NCCL)
def test_variables_that_sagemakers_launchers_override_are_not_read_either(variable):
    text = text_of("sagemaker", PLANS["gpu"]).replace("TOPOTUNE_PLAN", variable)
    with pytest.raises(InputFileError, match="which SageMaker's launchers set"):
        find_target("sagemaker").read(text, "file")


@pytest.mark.parametrize(
    ("cap", "expected"), [(8, {"ddp_bucket_cap_mb": 8}), (25, {}), (32.5, {}), (0.25, {})]
)
def test_hyperparameters_are_what_the_trainer_takes(cap, expected):
    assert json.loads(text_of("sagemaker", make(gpu_document(cap))))["hyperparameters"] == expected


def test_sagemaker_runs_torchrun_on_whole_nodes_of_gpus_and_mpirun_elsewhere():
    def distribution(plan):
        return json.loads(text_of("sagemaker", plan))["distribution"]

    assert distribution(PLANS["gpu"]) == {"torch_distributed": {"enabled": True}}
    document = gpu_document(8)
    document["fingerprint"]["hard"]["device_count"] = 8
    assert distribution(make(document))["mpi"]["processes_per_host"] == 2
    assert (
        "-x TOPOTUNE_PLAN=/opt/ml/code/plan.json" in distribution(PLANS["cpu"])["mpi"]["custom_mpi_options"]
    )


# Kubernetes, Azure ML: texts that YAML would take for something else


@pytest.mark.parametrize("interface", ["on", "no", "1e3", "0x1f", "123", "1:30"])
def test_values_stay_texts(interface):
    document = export_plans.cpu_document()
    document["context"]["interface"] = interface
    text = text_of("kubernetes", make(document))
    assert f'"{interface}"' in text
    values = {item["name"]: item["value"] for item in yaml.safe_load(text)["env"]}
    assert values["GLOO_SOCKET_IFNAME"] == interface
    azure = yaml.safe_load(text_of("azureml", make(document)))
    assert azure["environment_variables"]["GLOO_SOCKET_IFNAME"] == interface
    assert azure["distribution"]["process_count_per_instance"] == 2


def test_a_plan_that_no_config_map_holds_is_told():
    document = export_plans.cpu_document()
    document["warnings"] = ["x" * 4096] * 256
    assert any("more than a ConfigMap holds" in said for said in warnings_of("kubernetes", make(document)))


# Slurm


def shell(command: str, **variables: str) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": "/usr/bin:/bin"} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def prolog(folder, plan_path="/shared/plan.json", interface="lo", **variables: str) -> str:
    document = export_plans.cpu_document()
    document["context"]["interface"] = interface
    script = folder / "prolog.sh"
    script.write_text(text_of("slurm", make(document), ExportOptions(plan_path=plan_path)))
    return shell(f"sh {script}", **variables)


def test_the_prolog_prints_what_srun_sets_without_quotes(tmp_path):
    path = "/shared/it's a \\n $HOME plan.json"
    assert prolog(tmp_path, path) == (
        f"export TOPOTUNE_PLAN={path}\nexport GLOO_SOCKET_IFNAME=lo\n"
        "export HOROVOD_FUSION_THRESHOLD=26214400\n"
    )


def test_the_prolog_leaves_what_the_user_has_set(tmp_path):
    assert prolog(tmp_path, TOPOTUNE_PLAN="mine", GLOO_SOCKET_IFNAME="eth9", HOROVOD_AUTOTUNE="1") == ""


def test_the_prolog_names_interfaces_only_where_they_are(tmp_path):
    assert "GLOO" not in prolog(tmp_path, interface="lo,eth77")
    assert "GLOO_SOCKET_IFNAME=lo:1,lo\n" in prolog(tmp_path, interface="lo:1,lo")


def test_a_path_that_would_be_two_lines_of_a_prolog_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has control characters, which srun cannot pass on"):
        prolog(tmp_path, plan_path="/shared/plan\nexport LD_PRELOAD=x.json")
