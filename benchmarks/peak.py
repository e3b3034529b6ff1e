"""The processor's float32 peak, measured: multiply-adds on registers alone, in so many threads.

A loop adds the product of two vectors to each of several vectors that stay in registers, so that neither memory nor the
latency of an addition holds it up. The best of a few widths and numbers of vectors is the peak, in GFLOP/s; a
multiply-add counts as two.

    python benchmarks/peak.py --threads 1
"""

from __future__ import annotations

from common import parser

#: Turns of the loop, calls of each program, and the numbers of vectors: fewer than a processor has registers.
LOOPS, CALLS, VECTORS = 1_000_000, 20, (8, 10, 12)

PROGRAM = """
@T.prim_func
def main(
    x: T.Buffer(({lanes},), "float32"),
    y: T.Buffer(({lanes},), "float32"),
    out: T.Buffer(({threads}, {vectors}, {lanes}), "float32"),
):
    for t in T.parallel({threads}):
        sums = T.alloc_buffer(({vectors}, {lanes}), "float32")
        for i in T.unroll({vectors}):
            for lane in T.vectorized({lanes}):
                sums[i, lane] = T.float32(0)
        for k in range({loops}):
            for i in T.unroll({vectors}):
                for lane in T.vectorized({lanes}):
                    sums[i, lane] = sums[i, lane] + x[lane] * y[lane]
        for i in T.unroll({vectors}):
            for lane in T.vectorized({lanes}):
                out[t, i, lane] = sums[i, lane]
"""


def gflops(threads: int, lanes: int, vectors: int) -> float:
    """GFLOP/s of the fastest call of one program."""
    import numpy as np
    import tvm
    from tvm.script import tirx

    from syno_lab.codegen.tvm_device import find_target

    text = PROGRAM.format(threads=threads, lanes=lanes, vectors=vectors, loops=LOOPS)
    program = tvm.script.from_source(text, {"T": tirx})
    built = tvm.compile(program, target=find_target(f"local:{threads}"))
    ones, out = np.full(lanes, 2.0**-10, "float32"), np.zeros((threads, vectors, lanes), "float32")
    given = [tvm.runtime.tensor(one) for one in (ones, ones, out)]
    timed = built.mod.time_evaluator("main", tvm.cpu(), number=1, repeat=CALLS)(*given)
    wrong = abs(given[-1].numpy() - LOOPS * 2.0**-20).max()
    if wrong > 1e-3:
        raise RuntimeError(f"expected {LOOPS * 2.0**-20} in each sum, found one that differs by {wrong}")
    return float(2 * LOOPS * vectors * lanes * threads / min(timed.results) / 1e9)


def main() -> None:
    """Measure, and print GFLOP/s."""
    options = parser(__doc__ or "")
    options.add_argument("--threads", type=int, default=1)
    threads = options.parse_args().threads
    from syno_lab.codegen.tvm_device import find_target
    from syno_lab.tuning.lanes import vector_bits

    full = vector_bits(find_target(f"local:{threads}")) // 32
    print(max(gflops(threads, lanes, vectors) for lanes in (full, full // 2) for vectors in VECTORS))


if __name__ == "__main__":
    main()
