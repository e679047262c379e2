"""FLA's arguments as problems.

Promises: a Problem for a call that kdac computes as FLA does, or Refused. A call
that FLA itself would refuse is refused too, so that FLA's own error is raised.
Does not: know torch or kernels.
"""

from .operators import Problem, require

FLA_MIN_SAFE_BOUND = -5


def _gate(use_gate, lower_bound):
    if not use_gate:
        return "identity"
    return "softplus" if lower_bound is None else "bounded"


def _beta(use_sigmoid, negative):
    require(use_sigmoid or not negative,
            "allow_neg_eigval needs use_beta_sigmoid_in_kernel")
    if not use_sigmoid:
        return "identity"
    return "2sigmoid" if negative else "sigmoid"


def _known(kwargs, names):
    unknown = sorted(set(kwargs) - set(names))
    require(not unknown, "unknown arguments " + ", ".join(unknown))


def chunk_problem(dtype, q, k, v, g, beta, scale=None, initial_state=None,
                  output_final_state=False, use_qk_l2norm_in_kernel=False,
                  use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                  allow_neg_eigval=False, safe_gate=False, lower_bound=None,
                  disable_recompute=False, return_intermediate_states=False,
                  state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
                  cp_context=None, **kwargs):
    """chunk_kda; `dtype` gives a tensor's type."""
    _known(kwargs, ("A_log", "dt_bias", "chunk_size"))
    require(cp_context is None, "context parallelism is not supported")
    require(not return_intermediate_states,
            "intermediate states are not supported")
    require(kwargs.get("chunk_size", 64) in (32, 64),
            f"chunk_size = {kwargs.get('chunk_size')}")
    require(initial_state is None or dtype(initial_state) == "f32",
            "the initial state is not f32")
    if use_gate_in_kernel:
        require("A_log" in kwargs, "a gate in the kernel needs A_log")
        require(not safe_gate or (lower_bound is not None and
                                  FLA_MIN_SAFE_BOUND <= lower_bound < 0),
                f"safe_gate with lower_bound = {lower_bound}")
    return Problem(
        "chunk", q, k, v, g, beta, dtype(q),
        A_log=kwargs.get("A_log") if use_gate_in_kernel else None,
        dt_bias=kwargs.get("dt_bias") if use_gate_in_kernel else None,
        scale=scale, initial=initial_state, wants_final=output_final_state,
        l2norm=use_qk_l2norm_in_kernel,
        gate=_gate(use_gate_in_kernel, lower_bound), lower_bound=lower_bound,
        beta_map=_beta(use_beta_sigmoid_in_kernel, allow_neg_eigval),
        v_first=state_v_first, offsets=cu_seqlens)


def recurrent_problem(dtype, q, k, v, g, beta, A_log=None, dt_bias=None,
                      initial_state=None, scale=None, output_final_state=False,
                      inplace_final_state=True, state_v_first=False,
                      cu_seqlens=None, ssm_state_indices=None,
                      num_accepted_tokens=None, use_qk_l2norm_in_kernel=False,
                      use_gate_in_kernel=False,
                      use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                      lower_bound=None, out=None, **kwargs):
    """fused_recurrent_kda_fwd: what fused_recurrent_kda and decoding call."""
    _known(kwargs, ())
    require(num_accepted_tokens is None,
            "num_accepted_tokens (speculative decoding) is not supported")
    require(not inplace_final_state or initial_state is not None,
            "inplace_final_state needs an initial state")
    require(ssm_state_indices is None or inplace_final_state,
            "ssm_state_indices without inplace_final_state are not supported")
    return Problem(
        "step", q, k, v, g, beta, dtype(v if out is None else out),
        A_log=A_log if use_gate_in_kernel else None,
        dt_bias=dt_bias if use_gate_in_kernel else None, scale=scale,
        initial=initial_state,
        wants_final=output_final_state or inplace_final_state,
        l2norm=use_qk_l2norm_in_kernel,
        gate=_gate(use_gate_in_kernel, lower_bound), lower_bound=lower_bound,
        beta_map=_beta(use_beta_sigmoid_in_kernel, allow_neg_eigval),
        v_first=state_v_first, offsets=cu_seqlens, slots=ssm_state_indices,
        out=out)
