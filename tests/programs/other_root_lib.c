/* A library with the function `right`, or, compiled with -DOTHER, with a different one in its
 * place. */
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
