"""KDA token by token in f64 with PyTorch, and the distance from it.

Promises: the operator of shared/reference/kda-operator.md 1, from inputs as they
are stored. Does not: share code with kdac or FLA.
"""

import torch


def maps(q, k, g, beta, A_log=None, dt_bias=None, l2norm=False, gate="identity",
         lower_bound=None, beta_map="identity"):
    """q, k [.., H, K], log-decay [.., HV, K] and beta [.., HV] in f64."""
    q, k, g, beta = (x.double() for x in (q, k, g, beta))
    if l2norm:
        q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
                for x in (q, k))
    if gate != "identity":
        heads, width = g.shape[-2:]
        if dt_bias is not None:
            g = g + dt_bias.double().reshape(heads, width)
        rate = (A_log.double().reshape(heads, 1).exp() if A_log is not None
                else 1.0)
        g = (-rate * torch.nn.functional.softplus(g) if gate == "softplus"
             else lower_bound * torch.sigmoid(rate * g))
    if beta_map != "identity":
        beta = (2 if beta_map == "2sigmoid" else 1) * torch.sigmoid(beta)
    return q, k, g, beta


def recurrence(q, k, v, g, beta, scale, state):
    """[B, T, ..] and a state [B, HV, K, V]; heads of q and k as those of v."""
    alpha, out = g.exp(), torch.empty_like(v)
    for t in range(v.shape[1]):
        state = state * alpha[:, t, :, :, None]
        error = v[:, t] - (k[:, t, :, None] @ state)[:, :, 0]
        update = beta[:, t, :, None] * error
        state = state + k[:, t, :, :, None] * update[:, :, None]
        out[:, t] = scale * (q[:, t, :, None] @ state)[:, :, 0]
    return out, state


def kda(q, k, v, g, beta, scale=None, initial=None, v_first=False, cu=None,
        **options):
    """(out [B, T, HV, V], states [N, HV, ..]) in f64; `cu` are token counts up to
    each sequence, a list."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, g, beta = maps(q, k, g, beta, **options)
    group = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(group, dim=2) for x in (q, k))
    v = v.double()
    count = len(cu) - 1 if cu else q.shape[0]
    if initial is None:
        states = v.new_zeros(count, v.shape[2], q.shape[-1], v.shape[-1])
    else:
        states = initial.double()
        states = states.transpose(-1, -2) if v_first else states
    if cu:
        out, finals = torch.zeros_like(v), []
        for n in range(count):
            part = slice(cu[n], cu[n + 1])
            out[:, part], final = recurrence(
                *(x[:, part] for x in (q, k, v, g, beta)), scale,
                states[n:n + 1])
            finals.append(final)
        states = torch.cat(finals)
    else:
        out, states = recurrence(q, k, v, g, beta, scale, states)
    return out, states.transpose(-1, -2) if v_first else states


def relative(got, expected):
    """Frobenius error; infinite where something is not finite."""
    got = got.double()
    if not bool(torch.isfinite(got).all()):
        return float("inf")
    return float((got - expected).norm() / (expected.norm() + 1e-30))


def fla_error(got, expected):
    """FLA's criterion (kda-operator.md 5.1): 0 when differences are below 1e-6."""
    got, expected = got.double(), expected.double()
    if not bool(torch.isfinite(got).all()):
        return float("inf")
    if got.numel() == 0 or float((got - expected).abs().max()) <= 1e-6:
        return 0.0
    return float((got - expected).square().mean().sqrt()
                 / (expected.square().mean().sqrt() + 1e-8))
