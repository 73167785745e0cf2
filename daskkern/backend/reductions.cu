// Sums of which a step takes many, in one launch each and without workspaces.

#ifndef DASKKERN_GENERATED
typedef float given;
typedef double made;
#endif

#define ADD_THREADS 256
#define ROW_WARPS 8
#define SUM_THREADS 256

// out[i] is the sum of parts[k][i] over the n_parts parts, in double and in their order.
extern "C" __global__ void __launch_bounds__(ADD_THREADS) add_parts(
    const given* __restrict__ parts, long long n_parts, long long size, made* __restrict__ out)
{
    const long long step = (long long)gridDim.x * ADD_THREADS;
    for (long long i = (long long)blockIdx.x * ADD_THREADS + threadIdx.x; i < size; i += step) {
        double sum = 0.0;
#pragma unroll 4
        for (long long k = 0; k < n_parts; ++k) sum += (double)parts[k * size + i];
        out[i] = (made)sum;
    }
}

// out[i] is factor times the sum of the squares of row i, and not a number where that sum exceeds `most`. A warp has a
// row, and each of its threads every 32nd feature.
extern "C" __global__ void __launch_bounds__(32 * ROW_WARPS) row_squares(
    const given* __restrict__ rows, long long n_rows, long long n_features, long long row_stride, given most,
    given factor, given* __restrict__ out)
{
    __shared__ given sums[ROW_WARPS][33];  // the odd width spares bank conflicts
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long row = (long long)blockIdx.x * ROW_WARPS + warp;
    given sum = given(0);
    if (row < n_rows)
        for (long long k = lane; k < n_features; k += 32) {
            const given x = rows[row * row_stride + k];
            sum = fma(x, x, sum);
        }
    sums[warp][lane] = sum;
    __syncwarp();
    if (lane == 0 && row < n_rows) {
        double total = 0.0;
#pragma unroll
        for (int k = 0; k < 32; ++k) total += (double)sums[warp][k];
        const given whole = (given)total;
        out[row] = whole <= most ? whole * factor : (given)(whole - whole) / (given)0;
    }
}

// Write the sum of `mine` over the threads of this block to its place of `parts`, always in the same order.
__device__ static void write_block_sum(double mine, double* __restrict__ parts)
{
    __shared__ double sums[SUM_THREADS];
    sums[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        double sum = 0.0;
#pragma unroll
        for (int k = 0; k < SUM_THREADS; k += 32) sum += sums[k + threadIdx.x];
        sums[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0.0;
#pragma unroll
        for (int k = 0; k < 32; ++k) sum += sums[k];
        parts[blockIdx.x] = sum;
    }
}

// parts[b] is the sum of the values that block b has of `size`, in double.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) sum_values(
    const given* __restrict__ values, long long size, double* __restrict__ parts)
{
    const long long step = (long long)gridDim.x * SUM_THREADS;
    double sum = 0.0;
    for (long long i = (long long)blockIdx.x * SUM_THREADS + threadIdx.x; i < size; i += step)
        sum += (double)values[i];
    write_block_sum(sum, parts);
}

// parts[b] is factor times the sum of the products of pairs that block b has of `size`, in double.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) sum_products(
    const given* __restrict__ left, long long size, const given* __restrict__ right, double factor,
    double* __restrict__ parts)
{
    const long long step = (long long)gridDim.x * SUM_THREADS;
    double sum = 0.0;
    for (long long i = (long long)blockIdx.x * SUM_THREADS + threadIdx.x; i < size; i += step)
        sum += (double)left[i] * (double)right[i];
    write_block_sum(factor * sum, parts);
}

// parts[b] is the number of values that are greater than `most` in size, or not numbers.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) count_beyond(
    const given* __restrict__ values, long long size, given most, double* __restrict__ parts)
{
    const long long step = (long long)gridDim.x * SUM_THREADS;
    double count = 0.0;
    for (long long i = (long long)blockIdx.x * SUM_THREADS + threadIdx.x; i < size; i += step) {
        const given value = values[i];
        if (!(value <= most && value >= -most)) count += 1.0;
    }
    write_block_sum(count, parts);
}
