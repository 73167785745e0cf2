// Inner products become kernel values in place, in one pass over the tile: for wide rows, after a matrix product.

#include "common.cuh"

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
    for (long long row = blockIdx.y; row < n_rows; row += gridDim.y) {
        real* place = tile + row * tile_stride + column;
        *place = kernel_value(*place, load_stats(x_squared, x_norm, x_inverse, row), column_stats NUMBERS_ARGUMENTS);
    }
}
