"""Kernel names of NVIDIA's, AMD's and others' libraries."""

import pytest

from mofa_lab.traces.operators import Class, class_of


@pytest.mark.parametrize(
    "name, kind",
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", Class.GEMM),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTN", Class.GEMM),
        ("Cijk_Alik_Bljk_BBS_BH_MT256x256x64_SE", Class.GEMM),
        ("void cutlass::device_kernel<flash::FlashAttnBwd<x>>(Params)", Class.ATTENTION),
        ("fmha_fwd_d128_bf16_causal", Class.ATTENTION),
        ("void cutlass::Kernel<GroupProblemShape<1>>(Params)", Class.GROUPED),
        (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)",
            Class.REDUCE_SCATTER,
        ),
        ("ncclDevKernel_AllReduce_Sum_f32_TREE_LL(x)", Class.ALL_REDUCE),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", Class.ALL_GATHER),
        ("ncclDevKernel_SendRecv(x)", Class.POINT),
        ("ncclDevKernel_AllToAll(x)", Class.ALL_TO_ALL),
        ("void deep_ep::internode::dispatch<false>(x)", Class.ALL_TO_ALL),
        ("gloo:all_reduce", Class.ALL_REDUCE),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>(x)", Class.OPTIMIZER),
        (
            "void at::native::vectorized_elementwise_kernel<4, add::{lambda(float)#1}>(x)",
            Class.ELEMENTWISE,
        ),
        ("void layer_norm::ln_fwd_kernel<x>(x)", Class.ELEMENTWISE),
        ("Memcpy DtoH (Device -> Pinned)", Class.COPY),
    ],
)
def test_a_kernel_is_known_by_its_name(name, kind):
    assert class_of(name) is kind
