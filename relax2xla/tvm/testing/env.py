"""``tvm.testing.env``: questions of TVM 0.25's tests, each answered with yes or no."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax2xla.tvm.testing import machine

# LLVM's names of features that Linux calls otherwise.
_LINUX = {
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "amx-int8": "amx_int8",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
}


def has_cuda() -> bool:
    """Whether there is an NVIDIA GPU."""
    return machine.has_device("cuda")


def has_rocm() -> bool:
    """Whether there is an AMD GPU."""
    return machine.has_device("rocm")


def has_gpu() -> bool:
    """Whether there is a GPU."""
    return machine.has_gpus()


def has_multi_gpu(count: int = 2) -> bool:
    """Whether there are ``count`` GPUs of one maker."""
    return machine.has_gpus(count)


def has_llvm() -> bool:
    """Whether programs are compiled for the CPU; XLA always does."""
    return True


def has_cuda_compute(major: int, minor: int = 0, exact: bool = False) -> bool:
    """Whether the GPU is of this compute capability, or of a higher one unless ``exact``."""
    found, wanted = machine.compute_version(), (major, minor)
    return has_cuda() and (found == wanted if exact else found >= wanted)


def has_tensorcore() -> bool:
    """Whether the GPU has Tensor Cores."""
    return has_cuda_compute(7)


def has_cpu_feature(features: str | Sequence[str]) -> bool:
    """Whether the processor has the features, by LLVM's names."""
    names = [features] if isinstance(features, str) else features
    return machine.has_features(*(_LINUX.get(name, name) for name in names))


def has_arm_dot() -> bool:
    """Whether the processor has Arm's products of integers."""
    return has_cpu_feature("dotprod")


def has_arm_fp16() -> bool:
    """Whether the processor has Arm's float16."""
    return has_cpu_feature("fullfp16")


def has_aarch64_sve() -> bool:
    """Whether the processor has SVE."""
    return has_cpu_feature("sve")


def has_aarch64_sme() -> bool:
    """Whether the processor has SME."""
    return has_cpu_feature("sme")


def has_x86_vnni() -> bool:
    """Whether the processor has VNNI."""
    return has_cpu_feature("avx512vnni") or has_cpu_feature("avxvnni")


def has_x86_avx512() -> bool:
    """Whether the processor has AVX-512."""
    return has_cpu_feature(["avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512f"])


def has_x86_amx() -> bool:
    """Whether the processor has AMX."""
    return has_cpu_feature("amx-int8")


def is_x86() -> bool:
    """Whether the processor is an x86-64."""
    return machine.is_machine("x86_64", "AMD64")


def is_aarch64() -> bool:
    """Whether the processor is an Arm of 64 bits."""
    return machine.is_machine("aarch64", "arm64")


def _absent(name: str) -> Callable[..., bool]:
    """A question whose answer is no: what it asks for is no part of relax2xla."""

    def has(*args: int) -> bool:
        return False

    has.__name__ = has.__qualname__ = name
    return has


has_adreno_opencl = _absent("has_adreno_opencl")
has_aprofile_aem_fvp = _absent("has_aprofile_aem_fvp")
has_cublas = _absent("has_cublas")
has_cudagraph = _absent("has_cudagraph")
has_cudnn = _absent("has_cudnn")
has_cutlass = _absent("has_cutlass")
has_hexagon = _absent("has_hexagon")
has_hexagon_toolchain = _absent("has_hexagon_toolchain")
has_hipblas = _absent("has_hipblas")
has_llvm_min_version = _absent("has_llvm_min_version")
has_matrixcore = _absent("has_matrixcore")
has_metal = _absent("has_metal")
has_mrvl = _absent("has_mrvl")
has_nccl = _absent("has_nccl")
has_nnapi = _absent("has_nnapi")
has_nvcc_version = _absent("has_nvcc_version")
has_nvptx = _absent("has_nvptx")
has_nvshmem = _absent("has_nvshmem")
has_opencl = _absent("has_opencl")
has_openclml = _absent("has_openclml")
has_rpc = _absent("has_rpc")
has_vulkan = _absent("has_vulkan")
