/* Threads without a C library, made by raw clone(2), that reuse the FS base of ended threads:
 * `reused_fs_base [WHAT]`.
 *
 *   one      one after the other, on one stack with one FS base
 *   two      two at a time, alternating between two FS bases and stacks
 *   without  like `one`, as a user without perf events: the user's lockable memory is used up
 *
 * Each thread calls work() several times, which sleeps or spins. Prints the CPU time of the calls
 * in ns, `inside` work() and `outside` around the call, and `thread TID CALLS` for each thread. The
 * kernel writes no thread's id to memory.
 *
 * Built with -nostdlib -static -fno-stack-protector. */
#include <linux/perf_event.h>
#include <linux/sched.h>

enum { THREADS = 6, STACK = 1 << 16, NAP = 5000000, LEAST = 2 };
enum { WRITE = 1, MMAP = 9, CLOSE = 3, NANOSLEEP = 35, EXIT = 60, SETRESUID = 117, ARCH_PRCTL = 158, SETRLIMIT = 160,
       GETTID = 186, FUTEX = 202, CLOCK_GETTIME = 228, EXIT_GROUP = 231, PERF_EVENT_OPEN = 298 };

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long cpu(void)
{
    long time[2];
    call(CLOCK_GETTIME, 3, (long)time, 0, 0, 0, 0);
    return time[0] * 1000000000 + time[1];
}

static void put(const char *text)
{
    for (; *text != 0; text++)
        call(WRITE, 1, (long)text, 1, 0, 0, 0);
}

static void number(long value)
{
    char digits[24];
    int at = sizeof digits - 1;
    digits[at] = 0;
    do
        digits[--at] = '0' + value % 10;
    while (value /= 10);
    put(digits + at);
}

static long inside, outside, all, tids[THREADS];

__attribute__((noinline, noclone)) void work(long spins)
{
    long start = cpu();
    if (spins) {
        while (cpu() - start < NAP)
            ;
    } else {
        long nap[2] = {0, NAP};
        call(NANOSLEEP, (long)nap, 0, 0, 0, 0, 0);
    }
    __atomic_fetch_add(&inside, cpu() - start, __ATOMIC_RELAXED);
}

static char stacks[2][STACK] __attribute__((aligned(64)));
static void *blocks[3][64];
static volatile int alive[2];

__attribute__((used, noinline)) void body(long id)
{
    tids[id] = call(GETTID, 0, 0, 0, 0, 0, 0);
    for (long i = 0; i < id + LEAST; i++) {
        long start = cpu();
        work(id & 1);
        __atomic_fetch_add(&outside, cpu() - start, __ATOMIC_RELAXED);
        __atomic_fetch_add(&all, 1, __ATOMIC_RELAXED);
    }
    call(EXIT, 0, 0, 0, 0, 0, 0);
    for (;;)
        ;
}

long spawn(long flags, void *stack, void *block, volatile int *cleared);
__asm__(".text\nspawn: mov $56, %eax; mov %rdx, %r8; mov %rcx, %r10; xor %edx, %edx; syscall\n"
        "test %rax, %rax; jnz 1f\n"
        "xor %ebp, %ebp; pop %rdi; call body\n"
        "1: ret\n");

static void wait_for(int place)
{
    int now;
    while ((now = alive[place]) != 0)
        call(FUTEX, (long)&alive[place], 0, now, 0, 0, 0);
}

/* Drops root: root may lock any amount of memory. */
static void use_up(void)
{
    static const struct perf_event_attr dummy = {
        .type = PERF_TYPE_SOFTWARE, .size = PERF_ATTR_SIZE_VER0, .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1};
    long none[2] = {0, 0};
    if (call(SETRLIMIT, 8, (long)none, 0, 0, 0, 0) || call(SETRESUID, 65534, 65534, 65534, 0, 0, 0))
        call(EXIT_GROUP, 2, 0, 0, 0, 0, 0);
    for (long pages = 64; pages >= 0; pages = pages > 1 ? pages / 2 : pages - 1) {
        for (;;) {
            long event = call(PERF_EVENT_OPEN, (long)&dummy, 0, -1, -1, 0, 0);
            if (event < 0)
                return;
            long mapped = call(MMAP, 0, (1 + pages) * 4096, 1, 1, event, 0);
            call(CLOSE, event, 0, 0, 0, 0, 0);
            if (mapped < 0)
                break;
        }
    }
}

__attribute__((used)) void start(long *stack)
{
    const char *what = stack[0] > 1 ? (const char *)stack[2] : "one";
    long at_a_time = what[0] == 't' ? 2 : 1;
    blocks[2][0] = &blocks[2][0];
    call(ARCH_PRCTL, 0x1002, (long)blocks[2], 0, 0, 0, 0);
    if (what[0] == 'w')
        use_up();
    for (long id = 0; id < THREADS; id++) {
        int place = id % at_a_time;
        wait_for(place);
        long *top = (long *)(stacks[place] + STACK) - 1;
        top[0] = id;
        blocks[place][0] = &blocks[place][0];
        alive[place] = 1;
        spawn(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                  CLONE_CHILD_CLEARTID,
              top, blocks[place], &alive[place]);
    }
    wait_for(0);
    wait_for(1);
    for (long id = 0; id < THREADS; id++) {
        put("thread "), number(tids[id]), put(" "), number(id + LEAST), put("\n");
    }
    put("calls work "), number(all), put("\ninside work "), number(inside), put("\noutside work "), number(outside), put("\n");
    call(EXIT_GROUP, 0, 0, 0, 0, 0, 0);
}
__asm__(".globl _start\n_start: xor %ebp, %ebp; mov %rsp, %rdi; and $-16, %rsp; call start");
