/* A library that is `right` or, compiled with -DOTHER, has another function in its place. */
typedef unsigned long leaf_function(unsigned long);

#ifdef OTHER
#define right wrong
#endif

__attribute__((noinline, visibility("default"))) unsigned long
right(leaf_function *leaf, unsigned long x)
{
    return leaf(x) + 1;
}

unsigned long entrance(leaf_function *leaf, unsigned long x)
{
    return right(leaf, x) + 1;
}
