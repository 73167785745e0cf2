// Features of float32 as three terms of TF32, of which tensor cores make inner products with the error of float32:
// x = high + low + rest, both with 10 mantissa bits, and x.z = low.high' + high.low' + high.high' up to low.low'.
// A row of the left side becomes [low, high, high], and one of the right side [high, low, high].

// To the nearest number with 10 mantissa bits, even on ties.
static __device__ __forceinline__ float to_tf32(float value)
{
    union { float number; unsigned bits; } of;
    of.number = value;
    of.bits = (of.bits + 0xFFFu + ((of.bits >> 13) & 1u)) & 0xFFFFE000u;
    return of.number;
}

// rows has n rows of d features, row_stride numbers apart; out is (n, 3 third): each term has zeros behind.
extern "C" __global__ void __launch_bounds__(256) tf32_terms(
    const float* __restrict__ rows, long long n, long long d, long long row_stride,
    float* __restrict__ out, long long third, long long left)
{
    const long long column = (long long)blockIdx.x * 256 + threadIdx.x;
    if (column >= 3 * third) return;
    const long long term = column / third, feature = column % third;
    const bool low = term == (left ? 0 : 1);
    for (long long row = blockIdx.y; row < n; row += gridDim.y) {
        float made = 0.0f;
        if (feature < d) {
            const float value = rows[row * row_stride + feature], high = to_tf32(value);
            made = low ? to_tf32(value - high) : high;
        }
        out[row * 3 * third + column] = made;
    }
}
