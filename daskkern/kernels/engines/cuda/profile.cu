// Inner products become kernel values in place, in one pass over the tile: for wide rows, after a matrix product.

#include "common.cuh"

#define PASSED 4  // rows of a thread at a time: so many loads are on their way

// tile (n_rows, n_columns) has rows of tile_stride numbers. A thread keeps one column and steps down the rows.
extern "C" __global__ void __launch_bounds__(THREADS) profile(
    real* __restrict__ tile, long long n_rows, long long n_columns, long long tile_stride,
    const real* __restrict__ x_squared, const real* __restrict__ x_norm, const real* __restrict__ x_inverse,
    const real* __restrict__ z_squared, const real* __restrict__ z_norm,
    const real* __restrict__ z_inverse NUMBERS_PARAMETERS)
{
    const long long column = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (column >= n_columns) return;
    const Stats column_stats = load_stats(z_squared, z_norm, z_inverse, column);
    for (long long first = (long long)blockIdx.y * PASSED; first < n_rows; first += (long long)gridDim.y * PASSED) {
        real* place = tile + first * tile_stride + column;
        real values[PASSED];
#pragma unroll
        for (int r = 0; r < PASSED; ++r) values[r] = first + r < n_rows ? place[r * tile_stride] : real(0);
#pragma unroll
        for (int r = 0; r < PASSED; ++r)
            if (first + r < n_rows)
                place[r * tile_stride] = kernel_value(
                    values[r], load_stats(x_squared, x_norm, x_inverse, first + r), column_stats NUMBERS_ARGUMENTS);
    }
}
