// K(X, Z) A for few features, without writing K: also K(X, Z)^T G, with the roles of X and Z exchanged.
//
// One thread owns ROWS_PER_THREAD rows: their features and sums stay in its registers. The columns pass by in
// chunks through shared memory, which all threads read at the same place at the same time. Sums are taken in the
// working type within a block of columns, in the columns' order, and in double over the blocks: no atomics, and
// every number is written by one thread only.

#include "common.cuh"

#define FEATURE_QUADS ((N_FEATURES + 3) / 4)
#define OUTPUT_QUADS ((N_OUTPUTS + 3) / 4)

// x (n_rows, N_FEATURES) and z (., N_FEATURES) are contiguous; blocks holds (start, stop) pairs of columns of K, of
// which blockIdx.y takes blocks_per_group. out is (groups, n_rows, out_stride).
extern "C" __global__ void __launch_bounds__(THREADS) scores(
    const real* __restrict__ x, const real* __restrict__ x_squared, const real* __restrict__ x_norm,
    const real* __restrict__ x_inverse, long long n_rows,
    const real* __restrict__ z, const real* __restrict__ z_squared, const real* __restrict__ z_norm,
    const real* __restrict__ z_inverse,
    const long long* __restrict__ blocks, long long n_blocks, long long blocks_per_group,
    const real* __restrict__ right, long long right_stride,
    double* __restrict__ out, long long out_stride CAPS_PARAMETER NUMBERS_PARAMETERS)
{
    __shared__ __align__(16) real columns[CHUNK_COLUMNS * FEATURE_QUADS * 4];
    __shared__ __align__(16) real coefficients[CHUNK_COLUMNS * OUTPUT_QUADS * 4];
    __shared__ Stats column_stats[CHUNK_COLUMNS];

    const int thread = threadIdx.x;
    const long long first = (long long)blockIdx.x * (THREADS * ROWS_PER_THREAD) + thread;
    real mine[ROWS_PER_THREAD][N_FEATURES];
    Stats row_stats[ROWS_PER_THREAD];
#pragma unroll
    for (int r = 0; r < ROWS_PER_THREAD; ++r) {
        const long long row = least(first + r * THREADS, n_rows - 1);  // rows beyond the last are not stored
#pragma unroll
        for (int k = 0; k < N_FEATURES; ++k) mine[r][k] = x[row * N_FEATURES + k];
        row_stats[r] = load_stats(x_squared, x_norm, x_inverse, row);
    }

    const long long last_block = least((blockIdx.y + 1) * blocks_per_group, n_blocks);
    for (long long block = blockIdx.y * blocks_per_group; block < last_block; ++block) {
        real sums[ROWS_PER_THREAD][N_OUTPUTS];
#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; ++r)
#pragma unroll
            for (int c = 0; c < N_OUTPUTS; ++c) sums[r][c] = real(0);

        const bool later = block > blockIdx.y * blocks_per_group;
        const long long stop = blocks[2 * block + 1];
        for (long long start = blocks[2 * block]; start < stop; start += CHUNK_COLUMNS) {
            const int width = (int)least(CHUNK_COLUMNS, stop - start);
            __syncthreads();  // the chunk before has been read
            for (int i = thread; i < width * N_FEATURES; i += THREADS)
                columns[i / N_FEATURES * (FEATURE_QUADS * 4) + i % N_FEATURES] = z[start * N_FEATURES + i];
            for (int i = thread; i < width * N_OUTPUTS; i += THREADS)
                coefficients[i / N_OUTPUTS * (OUTPUT_QUADS * 4) + i % N_OUTPUTS] =
                    right[(start + i / N_OUTPUTS) * right_stride + i % N_OUTPUTS];
            for (int i = thread; i < width; i += THREADS)
                column_stats[i] = load_stats(z_squared, z_norm, z_inverse, start + i);
            __syncthreads();

#pragma unroll 2
            for (int j = 0; j < width; ++j) {
                real values[ROWS_PER_THREAD];
#pragma unroll
                for (int r = 0; r < ROWS_PER_THREAD; ++r) values[r] = real(0);
                const Quad* column = (const Quad*)columns + j * FEATURE_QUADS;
#pragma unroll
                for (int q = 0; q < FEATURE_QUADS; ++q) {
                    const Quad four = column[q];
#pragma unroll
                    for (int u = 0; u < 4; ++u)
                        if (4 * q + u < N_FEATURES)
#pragma unroll
                            for (int r = 0; r < ROWS_PER_THREAD; ++r)
                                values[r] = with_term(
                                    mine[r][4 * q + u], four.of[u] CAP(4 * q + u), values[r] NUMBERS_ARGUMENTS);
                }
                const Stats stats = column_stats[j];
#pragma unroll
                for (int r = 0; r < ROWS_PER_THREAD; ++r)
                    values[r] = kernel_value(values[r], row_stats[r], stats NUMBERS_ARGUMENTS);
                const Quad* weights = (const Quad*)coefficients + j * OUTPUT_QUADS;
#pragma unroll
                for (int q = 0; q < OUTPUT_QUADS; ++q) {
                    const Quad four = weights[q];
#pragma unroll
                    for (int u = 0; u < 4; ++u)
                        if (4 * q + u < N_OUTPUTS)
#pragma unroll
                            for (int r = 0; r < ROWS_PER_THREAD; ++r)
                                sums[r][4 * q + u] = fma(values[r], four.of[u], sums[r][4 * q + u]);
                }
            }
        }

#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; ++r) {
            const long long row = first + r * THREADS;
            if (row < n_rows) {
                double* place = out + (blockIdx.y * n_rows + row) * out_stride;
#pragma unroll
                for (int c = 0; c < N_OUTPUTS; ++c) place[c] = (later ? place[c] : 0.0) + (double)sums[r][c];
            }
        }
    }
}
