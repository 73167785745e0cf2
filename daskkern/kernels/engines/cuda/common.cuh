// What all kernels share: the working type, the numbers of a row, and the formula.
//
// At run time daskkern.kernels.engines.cuda.source puts its own formula and sizes before this text and defines
// DASKKERN_GENERATED. Without it, the Gaussian of 18 features and 10 outputs is compiled, as a check.

#ifndef DASKKERN_GENERATED
typedef float real;
#define N_FEATURES 18
#define N_OUTPUTS 10
#define ROWS_PER_THREAD 2
#define SPREAD_IS_CSR 0
#define USES_SQUARED 1
#define USES_NORM 0
#define USES_INVERSE 0
#define CAPS_PARAMETER     // the largest differences that count of each feature, where a formula caps them
#define CAP(k)
#define NUMBERS_PARAMETERS , real n0
#define NUMBERS_ARGUMENTS , n0
#endif

#define THREADS 128        // of a block of `scores`, `profile` and `write_sparse`
#define CHUNK_COLUMNS 64   // columns that `scores` holds in shared memory at a time

// What a formula may read of one row: |x|^2, |x| and 1/|x|.
struct Stats {
    real squared, norm, inverse;
};

// Four numbers that shared memory delivers in one instruction (two for double).
struct __align__(16) Quad {
    real of[4];
};

__device__ __forceinline__ Stats load_stats(
    const real* __restrict__ squared, const real* __restrict__ norm, const real* __restrict__ inverse, long long row)
{
    Stats stats;
    stats.squared = USES_SQUARED ? squared[row] : real(0);
    stats.norm = USES_NORM ? norm[row] : real(0);
    stats.inverse = USES_INVERSE ? inverse[row] : real(0);
    return stats;
}

// The larger and the smaller of two numbers; x where x is not a number.
__device__ __forceinline__ real larger(real x, real bound) { return bound > x ? bound : x; }
__device__ __forceinline__ real smaller(real x, real bound) { return bound < x ? bound : x; }
__device__ __forceinline__ long long least(long long a, long long b) { return a < b ? a : b; }

#ifndef DASKKERN_GENERATED
__device__ __forceinline__ real kernel_value(real inner, Stats row, Stats column NUMBERS_PARAMETERS)
{
    const real squared_distance = larger(fma(inner, real(-2), row.squared + column.squared), real(0));
    return exp(squared_distance * n0);
}

// The term of one feature: of an inner product here; a formula of differences sums powers of |x - z|.
__device__ __forceinline__ real with_term(real x, real z, real sum NUMBERS_PARAMETERS) { return fma(x, z, sum); }
#endif
