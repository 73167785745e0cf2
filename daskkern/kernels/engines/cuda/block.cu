// K(X, Z) for few features, or for sums of differences of any number, written once: sums and formula in registers.
//
// A block of threads makes a square of TILE x TILE values, each thread 4 x 4 of them, as two pairs of rows by two pairs
// of columns; features pass through shared memory in chunks. Every inner product is summed in the features' order, as in
// `scores`. For 16 multiply-adds a thread reads four pairs: 16 cycles of shared memory on 16 of arithmetic, where single
// numbers took 32.

#include "common.cuh"

#define TILE 64
#define SIDE 16            // threads of a block along each side
#define EACH (TILE / SIDE)
#define CHUNK_FEATURES 16
#define NEIGHBOURS (64 / (int)sizeof(real))  // features of a row that neighbouring threads load: all, or 8 in float64
#define LINE (TILE + 2)    // of shared memory: even for pairs; 16 features of two rows go to 32 different banks, and 8 of float64

struct __align__(2 * sizeof(real)) Pair {
    real of[2];
};

// The place of a thread's i-th row, or column, in the square.
__device__ __forceinline__ int place_of(int thread, int i) { return 2 * thread + i % 2 + i / 2 * (TILE / 2); }

// x (n_rows, N_FEATURES) and z (n_columns, N_FEATURES) are contiguous. out has rows of out_stride numbers.
extern "C" __global__ void __launch_bounds__(SIDE * SIDE) write_block(
    const real* __restrict__ x, const real* __restrict__ x_squared, const real* __restrict__ x_norm,
    const real* __restrict__ x_inverse, long long n_rows,
    const real* __restrict__ z, const real* __restrict__ z_squared, const real* __restrict__ z_norm,
    const real* __restrict__ z_inverse, long long n_columns,
    real* __restrict__ out, long long out_stride CAPS_PARAMETER NUMBERS_PARAMETERS)
{
    __shared__ __align__(16) real rows[CHUNK_FEATURES][LINE];
    __shared__ __align__(16) real columns[CHUNK_FEATURES][LINE];

    const int thread = threadIdx.x;
    const int across = thread % SIDE, down = thread / SIDE;
    const long long first_row = (long long)blockIdx.x * TILE;
    real values[EACH][EACH];
    for (long long first_column = (long long)blockIdx.y * TILE; first_column < n_columns;
         first_column += (long long)gridDim.y * TILE) {
#pragma unroll
        for (int i = 0; i < EACH; ++i)
#pragma unroll
            for (int j = 0; j < EACH; ++j) values[i][j] = real(0);

        for (int start = 0; start < N_FEATURES; start += CHUNK_FEATURES) {
            const int depth = (int)least(CHUNK_FEATURES, N_FEATURES - start);
            __syncthreads();
            for (int i = thread; i < TILE * depth; i += SIDE * SIDE) {
                const int part = i / (TILE * NEIGHBOURS) * NEIGHBOURS, at = i - part * TILE;
                const int width = (int)least(NEIGHBOURS, depth - part), line = at / width, k = part + at % width;
                rows[k][line] = x[least(first_row + line, n_rows - 1) * N_FEATURES + start + k];
                columns[k][line] = z[least(first_column + line, n_columns - 1) * N_FEATURES + start + k];
            }
            __syncthreads();
            for (int k = 0; k < depth; ++k) {
                Pair left[EACH / 2], right[EACH / 2];
#pragma unroll
                for (int i = 0; i < EACH / 2; ++i) {
                    left[i] = *(const Pair*)&rows[k][place_of(down, 2 * i)];
                    right[i] = *(const Pair*)&columns[k][place_of(across, 2 * i)];
                }
#pragma unroll
                for (int i = 0; i < EACH; ++i)
#pragma unroll
                    for (int j = 0; j < EACH; ++j)
                        values[i][j] = with_term(left[i / 2].of[i % 2], right[j / 2].of[j % 2] CAP(start + k),
                                                 values[i][j] NUMBERS_ARGUMENTS);
            }
        }

#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const long long row = first_row + place_of(down, i);
            if (row < n_rows) {
                const Stats row_stats = load_stats(x_squared, x_norm, x_inverse, row);
#pragma unroll
                for (int j = 0; j < EACH; j += 2) {
                    const long long column = first_column + place_of(across, j);
                    Pair made;
#pragma unroll
                    for (int u = 0; u < 2; ++u)
                        if (column + u < n_columns)
                            made.of[u] = kernel_value(
                                values[i][j + u], row_stats, load_stats(z_squared, z_norm, z_inverse, column + u)
                                NUMBERS_ARGUMENTS);
                    real* place = out + row * out_stride + column;
                    if (column + 1 < n_columns && (size_t)place % sizeof(Pair) == 0) {
                        *(Pair*)place = made;
                    } else {
#pragma unroll
                        for (int u = 0; u < 2; ++u)
                            if (column + u < n_columns) place[u] = made.of[u];
                    }
                }
            }
        }
    }
}
