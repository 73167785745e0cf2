// Products of a table in memory with few columns, block by block: partial[b] = left[:, b] right[b], or with TURNED
// left[b]^T right[b], where b are the columns (turned: rows) of a block. The blocks are added in double by the caller.
//
// A block of threads makes 32 lines of one partial product. The table passes by in squares of 32 x 32 through shared
// memory; a thread owns one line and four outputs of every 16. Sums are taken in the working type, within a square and
// then over the squares of a block, in their order.
//
// With WITH_PROFILE the table holds inner products, and the formula is applied to each number as it is read: the values
// themselves are never written. Then it is not TURNED.

#ifndef DASKKERN_GENERATED
typedef float real;
#define N_OUTPUTS 10
#define TURNED 0
#define WITH_PROFILE 0
#endif

#define SQUARE 32
#define SUM_THREADS 128  // of a block: SQUARE lines times four
#define SETS ((N_OUTPUTS + 15) / 16)
#define SUM_BLOCKS (SETS == 1 ? 8 : 6)  // at once on a processor; 8 loads a thread then cover the latency of memory
#define PADDED (SETS * 16)

#if WITH_PROFILE
#define SUMS_NAME profile_sums
#define PROFILE_PARAMETERS                                                                                            \
    , const real* __restrict__ x_squared, const real* __restrict__ x_norm, const real* __restrict__ x_inverse,        \
    const real* __restrict__ z_squared, const real* __restrict__ z_norm, const real* __restrict__ z_inverse           \
    NUMBERS_PARAMETERS
#define VALUE(number, row, column)                                                                                    \
    kernel_value(number, load_stats(x_squared, x_norm, x_inverse, row),                                               \
                 load_stats(z_squared, z_norm, z_inverse, column) NUMBERS_ARGUMENTS)
#else
#define SUMS_NAME block_sums
#define PROFILE_PARAMETERS
#define VALUE(number, row, column) number
#endif

// Four numbers that shared memory delivers in one instruction (two for double).
struct __align__(16) Four {
    real of[4];
};

// left has n_lines lines (turned: columns) of which each is left_stride numbers after the last; right (., N_OUTPUTS) is
// contiguous; blocks holds (start, stop) pairs; partial is (n_blocks, n_lines, N_OUTPUTS).
extern "C" __global__ void __launch_bounds__(SUM_THREADS, SUM_BLOCKS) SUMS_NAME(
    const real* __restrict__ left, long long left_stride, long long n_lines,
    const long long* __restrict__ blocks, long long n_blocks,
    const real* __restrict__ right, real* __restrict__ partial PROFILE_PARAMETERS)
{
    __shared__ real square[SQUARE][SQUARE + 1];  // [line][place in the sum]; the odd width spares bank conflicts
    __shared__ __align__(16) real factors[SQUARE * PADDED];

    const int thread = threadIdx.x;
    const int line = thread % SQUARE, four = thread / SQUARE;
    const long long first = (long long)blockIdx.x * SQUARE;

    for (long long block = blockIdx.y; block < n_blocks; block += gridDim.y) {
        real sums[SETS][4];
#pragma unroll
        for (int set = 0; set < SETS; ++set)
#pragma unroll
            for (int u = 0; u < 4; ++u) sums[set][u] = real(0);

        const long long stop = blocks[2 * block + 1];
        for (long long start = blocks[2 * block]; start < stop; start += SQUARE) {
            __syncthreads();  // the square before has been read
            for (int i = thread; i < SQUARE * SQUARE; i += SUM_THREADS) {
                const int down = i / SQUARE, across = i % SQUARE;  // across lies side by side in left
#if TURNED
                const bool inside = start + down < stop && first + across < n_lines;
                square[across][down] = inside ? left[(start + down) * left_stride + first + across] : real(0);
#else
                const bool inside = first + down < n_lines && start + across < stop;
                square[down][across] =
                    inside ? VALUE(left[(first + down) * left_stride + start + across], first + down, start + across)
                           : real(0);
#endif
            }
            for (int i = thread; i < SQUARE * PADDED; i += SUM_THREADS) {
                const int place = i / PADDED, output = i % PADDED;
                const bool inside = start + place < stop && output < N_OUTPUTS;
                factors[i] = inside ? right[(start + place) * N_OUTPUTS + output] : real(0);
            }
            __syncthreads();

            real here[SETS][4];
#pragma unroll
            for (int set = 0; set < SETS; ++set)
#pragma unroll
                for (int u = 0; u < 4; ++u) here[set][u] = real(0);
            // A warp whose four outputs do not exist computes nothing: reads of shared memory are what limits the others.
            if (four * 4 < N_OUTPUTS) {
#pragma unroll 8
                for (int place = 0; place < SQUARE; ++place) {
                    const real value = square[line][place];
#pragma unroll
                    for (int set = 0; set < SETS; ++set) {
                        const Four weights = ((const Four*)factors)[(place * PADDED + set * 16) / 4 + four];
#pragma unroll
                        for (int u = 0; u < 4; ++u) here[set][u] = fma(value, weights.of[u], here[set][u]);
                    }
                }
            }
#pragma unroll
            for (int set = 0; set < SETS; ++set)
#pragma unroll
                for (int u = 0; u < 4; ++u) sums[set][u] += here[set][u];
        }

        if (first + line < n_lines) {
            real* place = partial + (block * n_lines + first + line) * N_OUTPUTS;
#pragma unroll
            for (int set = 0; set < SETS; ++set)
#pragma unroll
                for (int u = 0; u < 4; ++u)
                    if (set * 16 + four * 4 + u < N_OUTPUTS) place[set * 16 + four * 4 + u] = sums[set][u];
        }
    }
}
