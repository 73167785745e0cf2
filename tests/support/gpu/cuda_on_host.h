// CUDA as plain C++, for tests: one block of threads at a time, each thread a fiber that runs to the next barrier.
//
// Between two barriers the threads run one after the other, in rising order and then in falling order by turns, so
// that a missing barrier shows as a wrong number. Threads that do not all meet at a barrier are an error.

#include <cmath>
#include <cstddef>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

using std::acos;
using std::exp;
using std::fabs;
using std::fma;
using std::log;
using std::pow;
using std::sqrt;

struct Index {
    unsigned x, y;
};
static Index threadIdx, blockIdx, gridDim;

namespace host {

constexpr std::size_t stack_bytes = 1 << 16;

struct Fiber {
    ucontext_t context;
    bool done;
    unsigned waits;
};

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static unsigned current;
static void (*call)(void**);
static void** call_arguments;

static void body()
{
    call(call_arguments);
    fibers[current].done = true;
    swapcontext(&fibers[current].context, &scheduler);
}

static bool run_block(unsigned threads, std::vector<char>& stacks)
{
    fibers.assign(threads, Fiber());
    for (unsigned t = 0; t < threads; ++t) {
        getcontext(&fibers[t].context);
        fibers[t].context.uc_stack.ss_sp = &stacks[t * stack_bytes];
        fibers[t].context.uc_stack.ss_size = stack_bytes;
        fibers[t].context.uc_link = &scheduler;
        makecontext(&fibers[t].context, body, 0);
    }
    for (unsigned turn = 0;; ++turn) {
        unsigned done = 0;
        for (unsigned k = 0; k < threads; ++k) {
            current = turn % 2 ? threads - 1 - k : k;
            threadIdx = {current, 0};
            swapcontext(&scheduler, &fibers[current].context);
            done += fibers[current].done;
        }
        if (done == threads) return true;
        if (done) return false;  // some ended, others wait at a barrier
    }
}

template <class... Parameters, std::size_t... at>
void unpack(void (*kernel)(Parameters...), void** arguments, std::index_sequence<at...>)
{
    kernel(*(Parameters*)arguments[at]...);
}

template <class... Parameters>
void unpack(void (*kernel)(Parameters...), void** arguments)
{
    unpack(kernel, arguments, std::index_sequence_for<Parameters...>());
}

static bool run(void (*function)(void**), void** arguments, unsigned grid_x, unsigned grid_y, unsigned threads)
{
    std::vector<char> stacks(threads * stack_bytes);
    call = function;
    call_arguments = arguments;
    gridDim = {grid_x, grid_y};
    for (unsigned y = 0; y < grid_y; ++y)
        for (unsigned x = 0; x < grid_x; ++x) {
            blockIdx = {x, y};
            if (!run_block(threads, stacks)) return false;
        }
    return true;
}

}  // namespace host

static inline void __syncthreads()
{
    const unsigned mine = host::current;
    swapcontext(&host::fibers[mine].context, &host::scheduler);
}

// Warps do not run apart here: all threads of the block must meet it together.
static inline void __syncwarp() { __syncthreads(); }

#define EXPORT(kernel)                                                                                               \
    static void call_##kernel(void** arguments) { host::unpack(&kernel, arguments); }                                \
    extern "C" bool run_##kernel(void** arguments, unsigned x, unsigned y, unsigned threads)                         \
    {                                                                                                                \
        return host::run(&call_##kernel, arguments, x, y, threads);                                                  \
    }
