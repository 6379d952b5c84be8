/* A library of call sites: see unloading.c. */
#define CALL x = f(x) + __COUNTER__;
#define CALLS CALL CALL CALL CALL CALL CALL CALL CALL

long sites(long (*f)(long), long x);

long sites(long (*f)(long), long x)
{
    CALLS CALLS
    return x;
}
