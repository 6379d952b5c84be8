/* Exceptions that leave `middle` inside a call, and are caught in `outer`: `throws_by_block ROUNDS`.
 * Prints `ok SUM`. */
#include <cstdio>
#include <cstdlib>
#include <string>

#define NOINLINE __attribute__((noinline, noclone, noipa))

NOINLINE int thrower(int i)
{
    if (i % 3 == 0)
        throw i;
    return i + 1;
}

NOINLINE int middle(int i)
{
    std::string held(static_cast<std::size_t>(i % 40), 'x');
    int sum = 0;
    for (int k = 0; k < 3; k++)
        sum += k == 1 ? thrower(i) : k;
    return sum + static_cast<int>(held.size());
}

NOINLINE int outer(int i)
{
    try {
        return middle(i);
    } catch (int caught) {
        return caught & 1 ? -1 : 1;
    }
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? std::atol(argv[1]) : 10, sum = 0;
    for (int i = 0; i < rounds; i++)
        sum += outer(i);
    std::printf("ok %ld\n", sum);
    return 0;
}
