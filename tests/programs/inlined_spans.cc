// Functions that are inlined everywhere. Each counts its own executions, and those that are left by
// an exception or a jump: ROUNDS [THREADS]
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <vector>

#define INLINED static inline __attribute__((always_inline))
#define APART __attribute__((noinline))

enum { PLAIN, LOOPING, THROWING, CATCHING, NESTING, DESCENDING, JUMPING, SPINNING, RETURNING, ALL };
static const char *const NAMES[] = {"plain", "looping", "throwing", "catching", "nesting",
    "descending", "jumping", "spinning", "returning"};

static unsigned long entered[ALL], left[ALL], spun;
static thread_local jmp_buf *target;
static thread_local unsigned state;

static inline void count(unsigned long *of)
{
    __atomic_fetch_add(of, 1, __ATOMIC_RELAXED);
}

static unsigned long now()
{
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ul + time.tv_nsec;
}

APART void leaf(unsigned x)
{
    state = state * 1664525u + x;
}

APART void may_throw(unsigned x)
{
    leaf(x);
    if (x % 3 == 1)
        throw x;
}

APART void may_jump(unsigned x)
{
    leaf(x);
    if (x % 4 == 2)
        longjmp(*target, 1);
}

INLINED unsigned plain(unsigned x)
{
    count(&entered[PLAIN]);
    if (x & 1)
        leaf(x);
    return x * 7 + state;
}

INLINED unsigned looping(unsigned n)
{
    count(&entered[LOOPING]);
    for (unsigned i = 0; i < n; i++)
        leaf(i);
    return state;
}

INLINED unsigned throwing(unsigned x)
{
    count(&entered[THROWING]);
    may_throw(x);
    return state;
}

INLINED unsigned catching(unsigned x)
{
    count(&entered[CATCHING]);
    for (unsigned i = x; i < x + 3; i++) {
        try {
            may_throw(i);
        } catch (unsigned) {
            leaf(1);
        }
    }
    return state;
}

// It contains a copy of plain.
INLINED unsigned nesting(unsigned x)
{
    count(&entered[NESTING]);
    leaf(x);
    unsigned y = plain(x + 1);
    leaf(y);
    return y;
}

APART unsigned descend(unsigned n);

// It calls the function that contains it.
INLINED unsigned descending(unsigned n)
{
    count(&entered[DESCENDING]);
    leaf(n);
    return n == 0 ? 0 : descend(n - 1) + 1;
}

APART unsigned descend(unsigned n)
{
    leaf(2);
    unsigned sum = descending(n);
    leaf(3);
    return sum;
}

INLINED void jumping(unsigned x)
{
    count(&entered[JUMPING]);
    if (x % 4 == 2)
        count(&left[JUMPING]);
    may_jump(x);
    leaf(4);
}

// It takes 100 microseconds or more.
INLINED void spinning()
{
    count(&entered[SPINNING]);
    unsigned long start = now();
    while (now() - start < 100000)
        leaf(5);
}

// The containing function returns from it.
INLINED unsigned returning(unsigned x)
{
    count(&entered[RETURNING]);
    if (x & 1)
        return 3;
    leaf(x);
    return state;
}

APART unsigned plain_twice(unsigned x)
{
    unsigned sum = plain(x);
    leaf(sum);
    return sum + plain(x + 1);
}

APART unsigned plain_often(unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) {
        leaf(6);
        sum += plain(i);
    }
    return sum;
}

APART unsigned loops(unsigned n)
{
    leaf(n);
    unsigned sum = looping(n % 5);
    leaf(sum);
    return sum;
}

APART void throws(unsigned x)
{
    try {
        leaf(7);
        throwing(x);
        leaf(8);
    } catch (unsigned y) {
        leaf(y);
    }
}

// The exception leaves it.
APART unsigned throws_on(unsigned x)
{
    leaf(9);
    if (x % 3 == 1)
        count(&left[THROWING]);
    unsigned sum = throwing(x);
    leaf(10);
    return sum;
}

APART unsigned catches(unsigned x)
{
    leaf(11);
    unsigned sum = catching(x);
    leaf(12);
    return sum;
}

APART unsigned nests(unsigned x)
{
    leaf(13);
    unsigned sum = nesting(x);
    leaf(14);
    return sum;
}

APART void jumps_on(unsigned x)
{
    leaf(15);
    jumping(x);
    leaf(16);
}

APART void jumps(unsigned x)
{
    jmp_buf here;
    target = &here;
    if (setjmp(here) == 0)
        jumps_on(x);
}

APART void spins()
{
    unsigned long start = now();
    leaf(17);
    spinning();
    leaf(18);
    __atomic_fetch_add(&spun, now() - start, __ATOMIC_RELAXED);
}

APART unsigned returns(unsigned x)
{
    leaf(19);
    return returning(x);
}

static void *work(void *rounds)
{
    unsigned sum = 0;
    for (unsigned long i = 0; i < (unsigned long)rounds; i++) {
        unsigned x = i;
        sum += plain_twice(x) + plain_often(x % 7) + loops(x);
        throws(x);
        try {
            sum += throws_on(x);
        } catch (unsigned) {
            leaf(20);
        }
        sum += catches(x) + nests(x) + descend(x % 6) + returns(x);
        jumps(x);
        if (x % 8 == 0)
            spins();
    }
    return (void *)(unsigned long)sum;
}

int main(int count, char **arguments)
{
    unsigned long rounds = strtoul(arguments[1], nullptr, 10);
    unsigned long threads = count > 2 ? strtoul(arguments[2], nullptr, 10) : 0;
    std::vector<pthread_t> all(threads);
    puts("ready");
    fflush(stdout);
    for (pthread_t &thread : all)
        pthread_create(&thread, nullptr, work, (void *)rounds);
    if (threads == 0)
        work((void *)rounds);
    for (pthread_t thread : all)
        pthread_join(thread, nullptr);
    for (int of = 0; of < ALL; of++)
        printf("%s %lu %lu %lu\n", NAMES[of], entered[of], left[of], of == SPINNING ? spun : 0);
}
