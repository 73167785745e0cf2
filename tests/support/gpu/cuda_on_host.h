// CUDA as plain C++, for tests: one block of threads at a time, each thread a fiber that runs to the next barrier.
//
// Between two barriers the threads run one after the other, in rising order and then in falling order by turns, so
// that a missing barrier shows as a wrong number. Threads that do not all meet at a barrier are an error.

#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#ifndef __x86_64__
#include <ucontext.h>
#endif

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

// Where a fiber goes on. On x86-64 by hand: swapcontext asks the system for the signal mask at each switch, which takes
// most of the time of a launch.
#ifdef __x86_64__
using Place = void*;  // its stack

static __attribute__((naked, noinline)) void switch_to(Place*, Place*)
{
    asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq (%rsi), %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

static void begin(Place* place, char* stack, void (*work)())
{
    std::size_t end = ((std::size_t)stack + stack_bytes) & ~std::size_t(15);
    void** top = (void**)(end - 16);  // aligned as if `work` had been called
    *top = (void*)work;
    *place = top - 6;  // registers, whatever they hold
}
#else
using Place = ucontext_t;

static void switch_to(Place* from, Place* to) { swapcontext(from, to); }

static void begin(Place* place, char* stack, void (*work)())
{
    getcontext(place);
    place->uc_stack.ss_sp = stack;
    place->uc_stack.ss_size = stack_bytes;
    place->uc_link = nullptr;
    makecontext(place, work, 0);
}
#endif

struct Fiber {
    Place place;
    bool done;
};

static Place scheduler;
static std::vector<Fiber> fibers;
static std::unique_ptr<char[]> stacks;
static unsigned stacks_of;  // threads
static unsigned current;
static void (*call)(void**);
static void** call_arguments;

static void body()
{
    call(call_arguments);
    fibers[current].done = true;
    switch_to(&fibers[current].place, &scheduler);
}

static bool run_block(unsigned threads)
{
    fibers.assign(threads, Fiber());
    for (unsigned t = 0; t < threads; ++t) begin(&fibers[t].place, &stacks[t * stack_bytes], body);
    for (unsigned turn = 0;; ++turn) {
        unsigned done = 0;
        for (unsigned k = 0; k < threads; ++k) {
            current = turn % 2 ? threads - 1 - k : k;
            threadIdx = {current, 0};
            switch_to(&scheduler, &fibers[current].place);
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
    if (stacks_of < threads) {
        stacks.reset(new char[threads * stack_bytes]);  // not filled: that would take longer than most launches
        stacks_of = threads;
    }
    call = function;
    call_arguments = arguments;
    gridDim = {grid_x, grid_y};
    for (unsigned y = 0; y < grid_y; ++y)
        for (unsigned x = 0; x < grid_x; ++x) {
            blockIdx = {x, y};
            if (!run_block(threads)) return false;
        }
    return true;
}

}  // namespace host

static inline void __syncthreads()
{
    host::switch_to(&host::fibers[host::current].place, &host::scheduler);
}

// Warps do not run apart here: all threads of the block must meet it together.
static inline void __syncwarp() { __syncthreads(); }

#define EXPORT(kernel)                                                                                               \
    static void call_##kernel(void** arguments) { host::unpack(&kernel, arguments); }                                \
    extern "C" bool run_##kernel(void** arguments, unsigned x, unsigned y, unsigned threads)                         \
    {                                                                                                                \
        return host::run(&call_##kernel, arguments, x, y, threads);                                                  \
    }
