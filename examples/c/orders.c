/* Who calls `hash_lookup`, and for which caller is it slow? A shop takes orders, checks its stock
 * and writes bills. All three use the same two tables, one of which has a bad hash function.
 *
 *     make -C examples c
 *     examples/c/orders &
 *     ipath attach $! -f hash_lookup
 *
 * What you see: the path through `write_bill` and `find_customer` has by far the largest mean. All
 * names of customers begin alike, and only the first letters are hashed.
 *
 *     orders [SECONDS]        10 by default */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
#define SLOTS 1024
#define ENTRIES 600

struct table {
    size_t hashed_letters;
    char names[SLOTS][24];
    int values[SLOTS];
};

static struct table articles = {.hashed_letters = 24}, customers = {.hashed_letters = 4};

static uint32_t hash(const struct table *table, const char *name)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < table->hashed_letters && name[i]; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h % SLOTS;
}

/* The slot of a name, or the free slot for it. */
NOINLINE static int hash_lookup(const struct table *table, const char *name)
{
    uint32_t slot = hash(table, name);
    while (table->names[slot][0] && strcmp(table->names[slot], name) != 0)
        slot = (slot + 1) % SLOTS;
    return (int)slot;
}

static void insert(struct table *table, const char *name, int value)
{
    int slot = hash_lookup(table, name);
    snprintf(table->names[slot], sizeof table->names[slot], "%s", name);
    table->values[slot] = value;
}

static void name_of(char *name, const char *kind, int number) { snprintf(name, 24, "%s-%d", kind, number); }

NOINLINE static int find_article(int number)
{
    char name[24];
    name_of(name, "article", number % ENTRIES);
    return articles.values[hash_lookup(&articles, name)];
}

NOINLINE static int find_customer(int number)
{
    char name[24];
    name_of(name, "customer", number % ENTRIES);
    return customers.values[hash_lookup(&customers, name)];
}

NOINLINE static long take_order(int number) { return find_article(number) + find_article(number * 3); }

NOINLINE static long check_stock(int number, int depth)
{
    long stock = find_article(number + depth);
    return depth == 0 ? stock : stock + check_stock(number, depth - 1);
}

NOINLINE static long write_bill(int number) { return find_customer(number * 7) + find_article(number); }

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    for (int i = 0; i < ENTRIES; i++) {
        char name[24];
        name_of(name, "article", i);
        insert(&articles, name, i);
        name_of(name, "customer", i);
        insert(&customers, name, 2 * i);
    }
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    long bills = 0, sum = 0;
    do {
        for (int i = 0; i < 1000; i++, bills++)
            sum += take_order((int)(bills % 5000)) + check_stock(i, 3) + write_bill(i);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) < seconds);
    printf("%ld bills, sum %ld\n", bills, sum);
    return 0;
}
