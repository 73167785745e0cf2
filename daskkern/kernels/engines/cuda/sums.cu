// Products of a table in memory with few columns, summed in the working type within a block of the table's columns
// (with TURNED: of its rows), and in double over the blocks.
//
//     out[group] = sum over the group's blocks b of left[:, b] right[b]      partial[b] = scale left[b]^T right[b]
//
// Both read the table once, side by side, and ask for the next numbers before they use the last ones.
//
// Not turned, a warp has ROWS lines, and each of its threads every 32nd column of a block; at the end of a block the
// threads' sums are added through shared memory. TURNED, each thread has one column of the table and every WARPS-th row
// of a block, and the warps' sums are added in the same way.
//
// With WITH_PROFILE the table holds inner products, and the formula is applied to each number as it is read: the values
// themselves are never written. Then it is not TURNED.

#ifndef DASKKERN_GENERATED
typedef float real;
#define N_OUTPUTS 10
#define TURNED 0
#define WITH_PROFILE 0
#endif

#define SUM_THREADS 256  // of a block
#define WARPS 8

#if WITH_PROFILE
#define SUMS_NAME profile_sums
#define PROFILE_PARAMETERS                                                                                            \
    , const real* __restrict__ x_squared, const real* __restrict__ x_norm, const real* __restrict__ x_inverse,        \
    const real* __restrict__ z_squared, const real* __restrict__ z_norm, const real* __restrict__ z_inverse           \
    NUMBERS_PARAMETERS
#else
#define SUMS_NAME block_sums
#define PROFILE_PARAMETERS
#endif

#if !TURNED

#define ROWS (16 / (int)sizeof(real))  // lines of a warp
#define STEPS 2                  // numbers of a line that a thread asks for at a time
#define CHUNK (1024 / (int)sizeof(real))
#define LINE (CHUNK + 1)         // the odd length spares bank conflicts where factors are stored
#define SUMS (ROWS * N_OUTPUTS)  // of a thread
#define ADDED 8                  // sums of a warp that are added at a time, by four threads each
#define PASSES ((SUMS + ADDED - 1) / ADDED)

// left has n_lines lines of which each is left_stride numbers after the last; blocks holds (start, stop) pairs, of which
// blockIdx.y takes blocks_per_group; right (., N_OUTPUTS) has lines of right_stride numbers; out is (groups, n_lines,
// out_stride).
extern "C" __global__ void __launch_bounds__(SUM_THREADS, 2) SUMS_NAME(
    const real* __restrict__ left, long long left_stride, long long n_lines,
    const long long* __restrict__ blocks, long long n_blocks, long long blocks_per_group,
    const real* __restrict__ right, long long right_stride, double* __restrict__ out,
    long long out_stride PROFILE_PARAMETERS)
{
    __shared__ real factors[N_OUTPUTS * LINE];  // [output][place in the chunk]
    __shared__ real given[WARPS][ADDED][33];    // [sum][thread of the warp]; the odd width spares bank conflicts

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long first = ((long long)blockIdx.x * WARPS + warp) * ROWS;
    const real* lines[ROWS];
    double totals[PASSES];
#if WITH_PROFILE
    Stats row_stats[ROWS];
#endif
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const long long line = first + r < n_lines ? first + r : n_lines - 1;  // those beyond the last are not stored
        lines[r] = left + line * left_stride + lane;
#if WITH_PROFILE
        row_stats[r] = load_stats(x_squared, x_norm, x_inverse, line);
#endif
    }
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) totals[pass] = 0;

    const long long begin = blockIdx.y * blocks_per_group;
    const long long end = begin + blocks_per_group < n_blocks ? begin + blocks_per_group : n_blocks;
    for (long long block = begin; block < end; ++block) {
        real sums[PASSES * ADDED];
#pragma unroll
        for (int s = 0; s < PASSES * ADDED; ++s) sums[s] = real(0);

        const long long stop = blocks[2 * block + 1];
        for (long long start = blocks[2 * block]; start < stop; start += CHUNK) {
            const int width = stop - start < CHUNK ? (int)(stop - start) : CHUNK;
            real next[STEPS][ROWS];
#pragma unroll
            for (int k = 0; k < STEPS; ++k)
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    next[k][r] = k * 32 + lane < width ? lines[r][start + k * 32] : real(0);
            __syncthreads();  // the factors before have been read
            for (int i = thread; i < width * N_OUTPUTS; i += SUM_THREADS) {
                const int place = i / N_OUTPUTS, output = i % N_OUTPUTS;
                factors[output * LINE + place] = right[(start + place) * right_stride + output];
            }
            __syncthreads();
            for (int from = 0; from < width; from += 32 * STEPS) {
                real values[STEPS][ROWS];
#pragma unroll
                for (int k = 0; k < STEPS; ++k)
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        const int ahead = from + (STEPS + k) * 32;
                        values[k][r] = next[k][r];
                        if (ahead + lane < width) next[k][r] = lines[r][start + ahead];
                    }
#pragma unroll
                for (int k = 0; k < STEPS; ++k) {
                    const int place = from + k * 32 + lane;
                    if (place < width) {
#if WITH_PROFILE
                        const Stats column_stats = load_stats(z_squared, z_norm, z_inverse, start + place);
#pragma unroll
                        for (int r = 0; r < ROWS; ++r)
                            values[k][r] = kernel_value(values[k][r], row_stats[r], column_stats NUMBERS_ARGUMENTS);
#endif
#pragma unroll
                        for (int c = 0; c < N_OUTPUTS; ++c) {
                            const real factor = factors[c * LINE + place];
#pragma unroll
                            for (int r = 0; r < ROWS; ++r)
                                sums[r * N_OUTPUTS + c] = fma(values[k][r], factor, sums[r * N_OUTPUTS + c]);
                        }
                    }
                }
            }
        }

#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            __syncwarp();  // what was given before has been read
#pragma unroll
            for (int s = 0; s < ADDED; ++s) given[warp][s][lane] = sums[pass * ADDED + s];
            __syncwarp();
            real sum = real(0);
#pragma unroll
            for (int t = 0; t < ADDED; ++t) sum += given[warp][lane % ADDED][lane / ADDED * ADDED + t];
            totals[pass] += (double)sum;
        }
    }

    // Each sum has four threads, of eight threads' numbers each.
    __shared__ double quarters[WARPS][32];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        __syncwarp();
        quarters[warp][lane] = totals[pass];
        __syncwarp();
        const int s = pass * ADDED + lane;
        const long long line = first + s / N_OUTPUTS;
        if (lane < ADDED && s < SUMS && line < n_lines) {
            const double* part = quarters[warp] + lane;
            out[(blockIdx.y * n_lines + line) * out_stride + s % N_OUTPUTS] =
                (part[0] + part[ADDED]) + (part[2 * ADDED] + part[3 * ADDED]);
        }
    }
}

#else  // TURNED

#define QUADS ((N_OUTPUTS + 3) / 4)
#define CHUNK (24576 / (QUADS * 16 * WARPS) / (sizeof(real) / 4) * WARPS)  // rows whose factors are in 24 kB
#define LOADS 8      // of a thread at a time
#define EXCHANGED 8  // outputs that the warps exchange at a time

// Four numbers that shared memory delivers in one instruction (two for double).
struct __align__(16) Four {
    real of[4];
};

// left has n_lines columns, and rows of left_stride numbers; right (., N_OUTPUTS) is contiguous; blocks holds (start,
// stop) pairs; partial is (n_blocks, n_lines, N_OUTPUTS).
extern "C" __global__ void __launch_bounds__(SUM_THREADS, 2) SUMS_NAME(
    const real* __restrict__ left, long long left_stride, long long n_lines,
    const long long* __restrict__ blocks, long long n_blocks,
    const real* __restrict__ right, real scale, real* __restrict__ partial)
{
    __shared__ __align__(16) real factors[CHUNK * QUADS * 4];  // [place in the chunk][output]
    __shared__ real exchanged[WARPS][EXCHANGED][32];

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long first = (long long)blockIdx.x * 32;
    const real* column = left + (first + lane < n_lines ? first + lane : n_lines - 1);

    for (long long block = blockIdx.y; block < n_blocks; block += gridDim.y) {
        real sums[QUADS * 4];
#pragma unroll
        for (int c = 0; c < QUADS * 4; ++c) sums[c] = real(0);

        const long long stop = blocks[2 * block + 1];
        for (long long start = blocks[2 * block]; start < stop; start += CHUNK) {
            const int width = stop - start < (long long)CHUNK ? (int)(stop - start) : (int)CHUNK;
            const real* from = column + (start + warp) * left_stride;
            real next[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                next[k] = k * WARPS + warp < width ? from[k * WARPS * left_stride] : real(0);
            __syncthreads();  // the factors before have been read
            for (int i = thread; i < width * QUADS * 4; i += SUM_THREADS) {
                const int place = i / (QUADS * 4), output = i % (QUADS * 4);
                factors[i] = output < N_OUTPUTS ? right[(start + place) * N_OUTPUTS + output] : real(0);
            }
            __syncthreads();
            for (int begin = warp; begin < width; begin += LOADS * WARPS) {
                real values[LOADS];
#pragma unroll
                for (int k = 0; k < LOADS; ++k) values[k] = next[k];
                from += LOADS * WARPS * left_stride;
#pragma unroll
                for (int k = 0; k < LOADS; ++k)
                    if (begin + (LOADS + k) * WARPS < width) next[k] = from[k * WARPS * left_stride];
#pragma unroll
                for (int k = 0; k < LOADS; ++k) {
                    const int place = begin + k * WARPS;
                    if (place < width) {
#pragma unroll
                        for (int q = 0; q < QUADS; ++q) {
                            const Four four = ((const Four*)factors)[place * QUADS + q];
#pragma unroll
                            for (int u = 0; u < 4; ++u) sums[4 * q + u] = fma(values[k], four.of[u], sums[4 * q + u]);
                        }
                    }
                }
            }
        }

#pragma unroll
        for (int from = 0; from < N_OUTPUTS; from += EXCHANGED) {
            __syncthreads();  // what was exchanged before has been read
#pragma unroll
            for (int c = 0; c < EXCHANGED; ++c)
                if (from + c < QUADS * 4) exchanged[warp][c][lane] = sums[from + c];
            __syncthreads();
            for (int c = warp; c < EXCHANGED && from + c < N_OUTPUTS; c += WARPS) {
                real sum = real(0);
#pragma unroll
                for (int w = 0; w < WARPS; ++w) sum += exchanged[w][c][lane];
                if (first + lane < n_lines)
                    partial[(block * n_lines + first + lane) * N_OUTPUTS + from + c] = scale * sum;
            }
        }
    }
}

#endif
