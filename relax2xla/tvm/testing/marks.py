"""Marks of tests: what a machine must have for them, and which targets they are for."""

from __future__ import annotations

import functools
import importlib.util
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

from relax2xla.tvm.testing import env
from relax2xla.tvm.testing.values import SKIP_SLOW_TESTS

Decorator = Callable[[Any], Any]
EXCLUDED: Final = "tvm_excluded_targets"
FAILING: Final = "tvm_known_failing_targets"
_SUPPORT: Final = ("compile-and-run", "compile-only", "optional")
# All features by name; the plugin registers their markers.
FEATURES: Final[dict[str, Feature]] = {}


class Feature:
    """Something that tests need: a decorator that marks them, and skips them where it is not.

    name: of the marker; long_name: for people. ``run_time_check``: whether it is here, or why not;
    asked when a test is marked.
    """

    def __init__(
        self,
        name: str,
        long_name: str | None = None,
        *,
        run_time_check: Callable[[], bool | str],
    ) -> None:
        self.name = name
        self.long_name = long_name or name
        self._check = run_time_check
        FEATURES[name] = self

    def marks(self, support_required: str = "compile-and-run") -> list[pytest.MarkDecorator]:
        """The marks of a test; none skips it where the feature is "optional".

        What can be compiled here can be run, so "compile-only" asks for the same.
        """
        if support_required not in _SUPPORT:
            raise ValueError(
                f"support_required is {support_required!r}; known: {', '.join(_SUPPORT)}"
            )
        made = [getattr(pytest.mark, self.name)]
        if support_required != "optional":
            found = self._check()
            why = found if isinstance(found, str) else f"there is no {self.long_name} here"
            made.insert(0, pytest.mark.skipif(found is not True, reason=why))
        return made

    def __call__(self, func: Any = None, *, support_required: str = "compile-and-run") -> Any:
        """Mark ``func``, or give the decorator that does."""
        decorate = _all(self.marks(support_required))
        return decorate if func is None else decorate(func)

    @staticmethod
    def require(name: str, support_required: str = "compile-and-run") -> Decorator:
        """The decorator of the feature of this name; KeyError without one."""
        return FEATURES[name](support_required=support_required)


def _all(marks: Iterable[Decorator]) -> Decorator:
    kept = list(marks)

    def decorate(func: Any) -> Any:
        for mark in kept:
            func = mark(func)
        return func

    return decorate


requires_llvm = Feature("llvm", "compiler for the CPU", run_time_check=env.has_llvm)
requires_gpu = Feature("gpu", "GPU", run_time_check=env.has_gpu)
uses_gpu = requires_gpu(support_required="optional")
requires_multi_gpu = Feature("multi_gpu", "second GPU", run_time_check=env.has_multi_gpu)
uses_multi_gpu = requires_multi_gpu(support_required="optional")
requires_cuda = Feature("cuda", "CUDA", run_time_check=env.has_cuda)
requires_rocm = Feature("rocm", "ROCm", run_time_check=env.has_rocm)
requires_tensorcore = Feature("tensorcore", "Tensor Core", run_time_check=env.has_tensorcore)
requires_arm_dot = Feature("arm_dot", "Arm dot product", run_time_check=env.has_arm_dot)
requires_arm_fp16 = Feature("arm_fp16", "Arm float16", run_time_check=env.has_arm_fp16)
requires_aarch64_sve = Feature("arm_sve", "SVE", run_time_check=env.has_aarch64_sve)
requires_aarch64_sme = Feature("arm_sme", "SME", run_time_check=env.has_aarch64_sme)
requires_x86_vnni = Feature("x86_vnni", "VNNI", run_time_check=env.has_x86_vnni)
requires_x86_avx512 = Feature("x86_avx512", "AVX-512", run_time_check=env.has_x86_avx512)
requires_x86_amx = Feature("x86_amx", "AMX", run_time_check=env.has_x86_amx)
requires_x86 = Feature("x86", "x86-64", run_time_check=env.is_x86)
requires_aarch64 = Feature("aarch64", "Arm of 64 bits", run_time_check=env.is_aarch64)


def _absent(name: str, long_name: str) -> Feature:
    """A feature of TVM's own code generators and libraries, which XLA stands in for."""
    why = f"relax2xla has no {long_name}"
    return Feature(name, long_name, run_time_check=lambda: why)


requires_aprofile_aem_fvp = _absent("aprofile_aem_fvp", "simulator of AProfile")
requires_cublas = _absent("cublas", "code generator for cuBLAS")
requires_cudagraph = _absent("cudagraph", "CUDA graphs of its own")
requires_cudnn = _absent("cudnn", "code generator for cuDNN")
requires_cutlass = _absent("cutlass", "code generator for CUTLASS")
requires_hexagon = _absent("hexagon", "code generator for Hexagon")
requires_hipblas = _absent("hipblas", "code generator for hipBLAS")
requires_libtorch = _absent("libtorch", "code generator for LibTorch")
requires_matrixcore = _absent("matrixcore", "code generator for Matrix Cores")
requires_metal = _absent("metal", "code generator for Metal")
requires_mrvl = _absent("mrvl", "code generator for Marvell")
requires_nccl = _absent("nccl", "NCCL of its own")
requires_nnapi = _absent("nnapi", "code generator for NNAPI")
requires_nvptx = _absent("nvptx", "code generator for PTX")
requires_opencl = _absent("opencl", "code generator for OpenCL")
requires_openclml = _absent("openclml", "code generator for CLML")
requires_rpc = _absent("rpc", "RPC")
requires_vulkan = _absent("vulkan", "code generator for Vulkan")

slow = pytest.mark.skipif(SKIP_SLOW_TESTS, reason="SKIP_SLOW_TESTS is set")
skip_if_wheel_test: Decorator = _all([])


def requires_llvm_minimum_version(major_version: int) -> Decorator:
    """Skip: what tests ask LLVM for is its text, which XLA does not show."""
    return pytest.mark.skip(reason=f"relax2xla shows no code of LLVM {major_version}")


def requires_nvcc_version(
    major_version: int, minor_version: int = 0, release_version: int = 0
) -> Decorator:
    """Skip: kernels are XLA's, which needs no nvcc."""
    wanted = f"{major_version}.{minor_version}.{release_version}"
    return pytest.mark.skip(reason=f"relax2xla calls no nvcc {wanted}")


def requires_cuda_compute_version(major_version: int, minor_version: int = 0) -> Decorator:
    """Skip where there is no GPU of this compute capability or a higher one."""
    here = env.has_cuda_compute(major_version, minor_version)
    why = f"there is no GPU of compute capability {major_version}.{minor_version}"
    return _all([pytest.mark.skipif(not here, reason=why), *requires_cuda.marks()])


def is_ampere_or_newer() -> bool:
    """Whether there is an NVIDIA GPU of compute capability 8.0 or higher, save 8.9."""
    return env.has_cuda_compute(8) and not env.has_cuda_compute(8, 9, exact=True)


def requires_package(*packages: str) -> Decorator:
    """Skip where one of the Python packages is not installed."""
    return _all(
        pytest.mark.skipif(importlib.util.find_spec(p) is None, reason=f"{p} is not installed")
        for p in packages
    )


def skip_if_32bit(reason: str) -> Callable[..., Any]:
    """A decorator that skips on machines of 32 bits; called with nothing, it gives its marks."""
    marks = [pytest.mark.skip(reason=reason)] if "32bit" in platform.architecture()[0] else []
    return lambda *funcs: _all(marks)(funcs[0]) if funcs else marks


def skip_if_no_reference_system(func: Any) -> Any:
    """Skip on machines of 32 bits."""
    return skip_if_32bit("the reference system is one of 64 bits")(func)


def parametrize_targets(*targets: Any) -> Any:
    """Run a test on these targets; on all that are enabled, if it is the decorator itself."""
    if len(targets) == 1 and callable(targets[0]):
        return targets[0]  # the plugin gives it targets, as it does to every test that takes one
    return pytest.mark.parametrize("target", list(targets), scope="session")


def exclude_targets(*kinds: str) -> Decorator:
    """Run a test on all enabled targets but those of these kinds."""
    return _noting(EXCLUDED, kinds)


def known_failing_targets(*kinds: str) -> Decorator:
    """Expect a test to fail on targets of these kinds."""
    return _noting(FAILING, kinds)


def _noting(name: str, kinds: Sequence[str]) -> Decorator:
    def note(func: Any) -> Any:
        setattr(func, name, tuple(kinds))
        return func

    return note


def xfail_parameterizations(*ids: str, reason: str) -> Decorator:
    """Expect a test to fail with the parameters of these ids; it takes ``request`` first."""
    return _by_id(pytest.xfail, ids, reason)


def skip_parameterizations(*ids: str, reason: str) -> Decorator:
    """Skip a test with the parameters of these ids; it takes ``request`` first."""
    return _by_id(pytest.skip, ids, reason)


def _by_id(outcome: Callable[[str], Any], ids: Sequence[str], reason: str) -> Decorator:
    def decorate(func: Any) -> Any:
        @functools.wraps(func)
        def test(request: pytest.FixtureRequest, *args: Any, **kwargs: Any) -> Any:
            _, _, rest = request.node.name.partition("[")
            if rest.removesuffix("]") in ids:
                outcome(reason)
            return func(request, *args, **kwargs)

        return test

    return decorate
