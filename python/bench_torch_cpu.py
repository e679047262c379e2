#!/usr/bin/env python3
"""Times a straightforward chunked KDA in PyTorch on the CPU, and kdac beside it.

The PyTorch code is the chunk form as FLA's reference writes it (kda-operator.md
2.5 and 3: everything in f32, one einsum per row of a chunk, forward
substitution row by row). Prints milliseconds; with --bench PATH also runs
kdac's host_bench on the same problem and prints the ratio.
"""
import argparse
import re
import subprocess
import sys
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-T", type=int, default=4096, help="tokens")
    parser.add_argument("-H", type=int, default=8, help="heads")
    parser.add_argument("-K", type=int, default=128, help="key channels")
    parser.add_argument("-V", type=int, default=128, help="value channels")
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--bench", metavar="PATH", help="kdac's host_bench")
    return parser.parse_args()


def within_chunk(torch, a, k, g):
    """out[..., c, i] = sum_d a[c, d] k[i, d] exp(g[c, d] - g[i, d]), c >= i."""
    size = a.shape[-2]
    out = torch.zeros(*a.shape[:-1], size)
    for i in range(size):
        decay = (g - g[..., i : i + 1, :]).clamp(max=0).exp()
        out[..., i] = torch.einsum("...cd,...d->...c", a * decay, k[..., i, :])
    return out.tril()


def inverse(torch, lower):
    """(I + lower)^-1 of strictly lower triangular matrices, row by row."""
    size = lower.shape[-1]
    x = -lower
    for i in range(1, size):
        row = x[..., i, :i].clone()
        x[..., i, :i] = row + (row[..., None] * x[..., :i, :i]).sum(-2)
    return x + torch.eye(size)


def chunk_kda(torch, q, k, v, g, beta, scale, chunk):
    """[H, T, K], [H, T, K], [H, T, V], natural-log decay [H, T, K], [H, T]."""
    heads, tokens, _ = q.shape
    split = lambda x: x.reshape(heads, tokens // chunk, chunk, *x.shape[2:])
    q, k, v, g, beta = map(split, (q * scale, k, v, g, beta))
    g = g.cumsum(2)
    lower = within_chunk(torch, k, k, g).tril(-1) * beta[..., None]
    weights = inverse(torch, lower) * beta[..., None, :]
    w, u = weights @ (g.exp() * k), weights @ v
    attention = within_chunk(torch, q, k, g)
    state = torch.zeros(heads, k.shape[-1], v.shape[-1])
    out = torch.empty_like(v)
    for n in range(tokens // chunk):
        gn, last = g[:, n], g[:, n, -1:]
        new = u[:, n] - w[:, n] @ state
        out[:, n] = (q[:, n] * gn.exp()) @ state + attention[:, n] @ new
        keys = k[:, n] * (last - gn).exp()
        state = state * last.transpose(1, 2).exp() + keys.transpose(1, 2) @ new
    return out.reshape(heads, tokens, -1), state


def recurrent_kda(torch, q, k, v, g, beta, scale):
    """The same token by token, to check the chunk form."""
    state = torch.zeros(q.shape[0], q.shape[2], v.shape[2])
    out = torch.empty_like(v)
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None]
        error = v[:, t] - torch.einsum("hkv,hk->hv", state, k[:, t])
        update = beta[:, t, None] * error
        state = state + k[:, t, :, None] * update[:, None, :]
        out[:, t] = torch.einsum("hkv,hk->hv", state, q[:, t] * scale)
    return out, state


def inputs(torch, args, tokens):
    torch.manual_seed(42)
    norm = torch.nn.functional.normalize
    q = norm(torch.randn(args.H, tokens, args.K), dim=-1)
    k = norm(torch.randn(args.H, tokens, args.K), dim=-1)
    v = torch.randn(args.H, tokens, args.V)
    g = -5.0 * torch.sigmoid(torch.randn(args.H, tokens, args.K) - 3.0)
    beta = torch.sigmoid(torch.randn(args.H, tokens))
    return q, k, v, g, beta


def bench_kdac(args):
    command = [args.bench, f"--T={args.T}", f"--H={args.H}", f"--K={args.K}"]
    command += [f"--V={args.V}", f"--cores={args.threads}", "--blas=false"]
    text = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(re.search(r"^([0-9.]+) ms", text.stdout, re.M).group(1))


def main():
    args = parse()
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed; apt-get install python3-torch or "
              "pip install torch would provide it", file=sys.stderr)
        return 2
    if args.T % args.chunk:
        print(f"-T must be a multiple of --chunk, but {args.T} is not one of "
              f"{args.chunk}", file=sys.stderr)
        return 2
    if args.threads:
        torch.set_num_threads(args.threads)
    scale = args.K**-0.5
    with torch.no_grad():
        small = inputs(torch, args, 2 * args.chunk)
        chunked = chunk_kda(torch, *small, scale, args.chunk)
        exact = recurrent_kda(torch, *small, scale)
        for got, want in zip(chunked, exact):
            assert (got - want).norm() <= 1e-4 * want.norm(), "chunk form is wrong"
        problem = inputs(torch, args, args.T)
        best = float("inf")
        for _ in range(args.repeats):
            start = time.perf_counter()
            chunk_kda(torch, *problem, scale, args.chunk)
            best = min(best, time.perf_counter() - start)
    line = f"PyTorch {torch.__version__} chunk form: {best * 1e3:.1f} ms"
    if args.bench:
        kdac = bench_kdac(args)
        line += f", kdac {kdac:.1f} ms, ratio {best * 1e3 / kdac:.1f}"
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
