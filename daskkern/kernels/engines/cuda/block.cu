// K(X, Z) for few features, or for sums of differences of any number, written once: sums and formula in registers.
//
// A block of threads makes a square of TILE x TILE values, each thread 4 x 4 of them; features pass through shared
// memory in chunks. Every inner product is summed in the features' order, as in `scores`.

#include "common.cuh"

#define TILE 64
#define SIDE 16            // threads of a block along each side
#define EACH (TILE / SIDE)
#define CHUNK_FEATURES 16

// x (n_rows, N_FEATURES) and z (n_columns, N_FEATURES) are contiguous. out has rows of out_stride numbers.
extern "C" __global__ void __launch_bounds__(SIDE * SIDE) write_block(
    const real* __restrict__ x, const real* __restrict__ x_squared, const real* __restrict__ x_norm,
    const real* __restrict__ x_inverse, long long n_rows,
    const real* __restrict__ z, const real* __restrict__ z_squared, const real* __restrict__ z_norm,
    const real* __restrict__ z_inverse, long long n_columns,
    real* __restrict__ out, long long out_stride CAPS_PARAMETER NUMBERS_PARAMETERS)
{
    __shared__ real rows[CHUNK_FEATURES][TILE + 1];  // one more: threads that store a column meet no bank twice
    __shared__ real columns[CHUNK_FEATURES][TILE + 1];

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
                const int line = i / depth, k = i % depth;
                rows[k][line] = x[least(first_row + line, n_rows - 1) * N_FEATURES + start + k];
                columns[k][line] = z[least(first_column + line, n_columns - 1) * N_FEATURES + start + k];
            }
            __syncthreads();
            for (int k = 0; k < depth; ++k) {
                real left[EACH], right[EACH];
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
                    left[i] = rows[k][down + i * SIDE];
                    right[i] = columns[k][across + i * SIDE];
                }
#pragma unroll
                for (int i = 0; i < EACH; ++i)
#pragma unroll
                    for (int j = 0; j < EACH; ++j)
                        values[i][j] = with_term(left[i], right[j] CAP(start + k), values[i][j] NUMBERS_ARGUMENTS);
            }
        }

#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const long long row = first_row + down + i * SIDE;
            if (row < n_rows) {
                const Stats row_stats = load_stats(x_squared, x_norm, x_inverse, row);
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    const long long column = first_column + across + j * SIDE;
                    if (column < n_columns)
                        out[row * out_stride + column] = kernel_value(
                            values[i][j], row_stats, load_stats(z_squared, z_norm, z_inverse, column)
                            NUMBERS_ARGUMENTS);
                }
            }
        }
    }
}
