// K(X, Z) where one side is CSR, or both are, written once: inner products and formula without a dense copy of either.
//
// A thread owns LISTS rows of one CSR side, the listed one, and walks along each of them once. Of the other side, LINES
// rows pass by through shared memory, CHUNK features at a time: so each number that is read from a list serves LINES
// products. Of a CSR side, only chunks in which some of its rows have a number are made. Every inner product is summed
// in the features' order by one thread.

#include "common.cuh"

#define LINES 8
#define LISTS 4
#define LANES (THREADS / LINES)                            // threads that scatter one row
#define CHUNK ((int)(32768 / (LINES * sizeof(real))))      // features

// Return the first place in columns[from .. to) whose column is not below stop.
__device__ __forceinline__ long long place_from(const int* __restrict__ columns, long long from, long long to, int stop)
{
    while (from < to) {
        const long long middle = from + (to - from) / 2;
        if (columns[middle] < stop) from = middle + 1;
        else to = middle;
    }
    return from;
}

// A side that is listed: numbers, columns and starts of rows. The other one, spread: the same, or a table with rows of
// n_features numbers, whose columns and starts are not read. Value (i, j) of listed row i and spread row j is at
// out[i * listed_stride + j * spread_stride].
extern "C" __global__ void __launch_bounds__(THREADS) write_sparse(
    const real* __restrict__ listed, const int* __restrict__ listed_columns,
    const long long* __restrict__ listed_starts,
    const real* __restrict__ listed_squared, const real* __restrict__ listed_norm,
    const real* __restrict__ listed_inverse, long long n_listed,
    const real* __restrict__ spread, const int* __restrict__ spread_columns,
    const long long* __restrict__ spread_starts,
    const real* __restrict__ spread_squared, const real* __restrict__ spread_norm,
    const real* __restrict__ spread_inverse, long long n_spread,
    long long n_features, real* __restrict__ out, long long listed_stride, long long spread_stride NUMBERS_PARAMETERS)
{
    __shared__ __align__(16) real chunk[CHUNK * LINES];  // [feature][line]
    const int thread = threadIdx.x;
    const long long first_line = (long long)blockIdx.x * LINES;
#if SPREAD_IS_CSR
    __shared__ long long begin[LINES], upto[LINES];  // of the spread rows' numbers in this chunk
    __shared__ int head[LINES];                      // the column of the first
    const int own_line = thread / LANES, lane = thread % LANES;
#endif
    const int d = (int)n_features;

    for (long long group = blockIdx.y; group * (THREADS * LISTS) < n_listed; group += gridDim.y) {
        const long long first_list = group * (THREADS * LISTS) + thread;
        long long at[LISTS], end[LISTS];
        real sums[LISTS][LINES];
#pragma unroll
        for (int l = 0; l < LISTS; ++l) {
            const long long list = first_list + l * THREADS;
            at[l] = list < n_listed ? listed_starts[list] : 0;
            end[l] = list < n_listed ? listed_starts[list + 1] : 0;
#pragma unroll
            for (int r = 0; r < LINES; ++r) sums[l][r] = real(0);
        }
#if SPREAD_IS_CSR
        for (int i = thread; i < CHUNK * LINES; i += THREADS) chunk[i] = real(0);
        if (thread < LINES) begin[thread] = spread_starts[least(first_line + thread, n_spread)];
#endif
        int start = 0;
        while (true) {
#if SPREAD_IS_CSR
            const long long line_end = spread_starts[least(first_line + thread % LINES + 1, n_spread)];
            if (thread < LINES) head[thread] = begin[thread] < line_end ? spread_columns[begin[thread]] : d;
            __syncthreads();
            start = d;
            for (int r = 0; r < LINES; ++r) start = (int)least(start, head[r]);
#endif
            if (start >= d) break;
            const int stop = (int)least((long long)start + CHUNK, d);
#if SPREAD_IS_CSR
            if (thread < LINES) upto[thread] = place_from(spread_columns, begin[thread], line_end, stop);
            __syncthreads();
            for (long long e = begin[own_line] + lane; e < upto[own_line]; e += LANES)
                chunk[(spread_columns[e] - start) * LINES + own_line] = spread[e];
#else
            for (int i = thread; i < (stop - start) * LINES; i += THREADS)  // neighbours store side by side
                chunk[i] = spread[least(first_line + i % LINES, n_spread - 1) * n_features + start + i / LINES];
#endif
            __syncthreads();
#pragma unroll
            for (int l = 0; l < LISTS; ++l)
                for (; at[l] < end[l]; ++at[l]) {
                    const int column = listed_columns[at[l]];
                    if (column >= stop) break;
                    if (column < start) continue;
                    const real value = listed[at[l]];
                    const Quad* quads = (const Quad*)chunk + (column - start) * (LINES / 4);
#pragma unroll
                    for (int q = 0; q < LINES / 4; ++q) {
                        const Quad four = quads[q];
#pragma unroll
                        for (int u = 0; u < 4; ++u) sums[l][4 * q + u] = fma(value, four.of[u], sums[l][4 * q + u]);
                    }
                }
            __syncthreads();  // the chunk has been read
#if SPREAD_IS_CSR
            for (long long e = begin[own_line] + lane; e < upto[own_line]; e += LANES)
                chunk[(spread_columns[e] - start) * LINES + own_line] = real(0);
            __syncthreads();
            if (thread < LINES) begin[thread] = upto[thread];
#else
            start = stop;
#endif
        }

#pragma unroll
        for (int l = 0; l < LISTS; ++l) {
            const long long list = first_list + l * THREADS;
            if (list < n_listed) {
                const Stats list_stats = load_stats(listed_squared, listed_norm, listed_inverse, list);
#pragma unroll
                for (int r = 0; r < LINES; ++r) {
                    const long long line = first_line + r;
                    if (line < n_spread)
                        out[list * listed_stride + line * spread_stride] = kernel_value(
                            sums[l][r], list_stats, load_stats(spread_squared, spread_norm, spread_inverse, line)
                            NUMBERS_ARGUMENTS);
                }
            }
        }
        __syncthreads();
    }
}
