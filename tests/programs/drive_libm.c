/* Calls the functions of libm with ordinary and special values, each for all its types, and prints
 * the bits of the results with the raised exceptions and errno. That shows whether vector and x87
 * registers, MXCSR and the x87 control word are preserved. The file includes itself once per type.
 */
#ifndef REAL

#define _GNU_SOURCE
#define __STDC_WANT_IEC_60559_TYPES_EXT__
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <complex.h>
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EACH(i, array) for (size_t i = 0; i < COUNT(array); i++)

static const double numbers[] = {
    0.0,  -0.0,   1.0,    -1.0, 0.5,     2.0,       -2.5,        3.75,     0.7853981633974483, 1e-3,
    10.0, 709.78, -745.2, 1e15, 1.5e300, -3.0e-310, 4.5e15 + .5, INFINITY, -INFINITY,          NAN,
};
/* The second arguments of functions with two. */
static const double seconds[] = {0.0, 1.0, -0.5, 2.0, 17.25, -INFINITY, NAN};

/* The bytes of a value in parts of `part` bytes, of which `used` are significant, highest first. */
static void bits(const void *value, size_t size, size_t part, size_t used)
{
    const unsigned char *bytes = value;
    int raised = fetestexcept(FE_ALL_EXCEPT), error = errno;
    for (size_t at = 0; at < size; at += part) {
        putchar(' ');
        for (size_t i = used; i-- > 0;)
            printf("%02x", bytes[at + i]);
    }
    if (raised | error)
        printf("/%x/%d", (unsigned)raised, error);
    feclearexcept(FE_ALL_EXCEPT);
    errno = 0;
}

#define SHOW_AS(type, part, used, expression)                                                      \
    do {                                                                                           \
        type shown = (expression);                                                                 \
        bits(&shown, sizeof shown, part, used);                                                    \
    } while (0)
#define SHOW_INTEGER(expression) SHOW_AS(long long, 8, 8, expression)

#define REAL float
#define USED 4
#define F(name) name##f
#include __FILE__
#define REAL double
#define USED 8
#define F(name) name
#include __FILE__
#define REAL long double
#define USED 10 /* of an x87 number's sixteen */
#define F(name) name##l
#include __FILE__
#define REAL _Float128
#define USED 16
#define F(name) name##f128
#include __FILE__

/* Functions that do not exist for every type, and narrowing functions. */
static void the_rest(void)
{
    static const struct {
        const char *name;
        double (*call)(double);
    } doubles[] = {{"gamma", gamma}, {"significand", significand}};
    static const struct {
        const char *name;
        double (*call)(double, double);
    } pairs[] = {{"drem", drem}, {"scalb", scalb}};
    EACH (f, doubles) {
        printf("%s:", doubles[f].name);
        EACH (i, numbers)
            SHOW_AS(double, 8, 8, doubles[f].call(numbers[i]));
        putchar('\n');
    }
    EACH (f, pairs) {
        printf("%s:", pairs[f].name);
        EACH (i, numbers)
            EACH (j, seconds)
                SHOW_AS(double, 8, 8, pairs[f].call(numbers[i], seconds[j]));
        putchar('\n');
    }
    EACH (i, numbers) {
        volatile double x = numbers[i];
        volatile long double y = numbers[i] * 1.0000000001L;
        volatile _Float128 z = y;
        printf("narrowing %zu:", i);
        SHOW_AS(double, 8, 8, nexttoward(x, y));
        SHOW_AS(float, 4, 4, nexttowardf(x, y));
        SHOW_AS(long double, 16, 10, nexttowardl(x, y));
        SHOW_AS(float, 4, 4, gammaf(x));
        SHOW_AS(long double, 16, 10, gammal(x));
        SHOW_AS(float, 4, 4, significandf(x));
        SHOW_AS(long double, 16, 10, significandl(x));
        SHOW_AS(float, 4, 4, dremf(x, 1.5f));
        SHOW_AS(long double, 16, 10, dreml(x, 1.5L));
        SHOW_AS(float, 4, 4, scalbf(x, 2));
        SHOW_AS(long double, 16, 10, scalbl(x, 2));
        SHOW_AS(float, 4, 4, fadd(x, 1.1));
        SHOW_AS(float, 4, 4, fsub(x, 1.1));
        SHOW_AS(float, 4, 4, fmul(x, 1.1));
        SHOW_AS(float, 4, 4, fdiv(x, 1.1));
        SHOW_AS(float, 4, 4, fsqrt(x));
        SHOW_AS(float, 4, 4, ffma(x, 1.1, -2.5));
        SHOW_AS(float, 4, 4, faddl(y, 1.1L));
        SHOW_AS(float, 4, 4, fsubl(y, 1.1L));
        SHOW_AS(float, 4, 4, fmull(y, 1.1L));
        SHOW_AS(float, 4, 4, fdivl(y, 1.1L));
        SHOW_AS(float, 4, 4, fsqrtl(y));
        SHOW_AS(float, 4, 4, ffmal(y, 1.1L, -2.5L));
        SHOW_AS(double, 8, 8, daddl(y, 1.1L));
        SHOW_AS(double, 8, 8, dsubl(y, 1.1L));
        SHOW_AS(double, 8, 8, dmull(y, 1.1L));
        SHOW_AS(double, 8, 8, ddivl(y, 1.1L));
        SHOW_AS(double, 8, 8, dsqrtl(y));
        SHOW_AS(double, 8, 8, dfmal(y, 1.1L, -2.5L));
        SHOW_AS(float, 4, 4, f32addf128(z, y));
        SHOW_AS(float, 4, 4, f32subf128(z, 1.1L));
        SHOW_AS(float, 4, 4, f32mulf128(z, y));
        SHOW_AS(float, 4, 4, f32divf128(z, 1.1L));
        SHOW_AS(float, 4, 4, f32sqrtf128(z));
        SHOW_AS(float, 4, 4, f32fmaf128(z, 1.1L, y));
        SHOW_AS(double, 8, 8, f64addf128(z, y));
        SHOW_AS(double, 8, 8, f64subf128(z, 1.1L));
        SHOW_AS(double, 8, 8, f64mulf128(z, y));
        SHOW_AS(double, 8, 8, f64divf128(z, 1.1L));
        SHOW_AS(double, 8, 8, f64sqrtf128(z));
        SHOW_AS(double, 8, 8, f64fmaf128(z, 1.1L, y));
        SHOW_AS(long double, 16, 10, f64xaddf128(z, y));
        SHOW_AS(long double, 16, 10, f64xsubf128(z, 1.1L));
        SHOW_AS(long double, 16, 10, f64xmulf128(z, y));
        SHOW_AS(long double, 16, 10, f64xdivf128(z, 1.1L));
        SHOW_AS(long double, 16, 10, f64xsqrtf128(z));
        SHOW_AS(long double, 16, 10, f64xfmaf128(z, 1.1L, y));
        putchar('\n');
    }
}

static void environment(void)
{
    static const int roundings[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    volatile double three = 3;
    volatile long double long_three = 3;
    fenv_t kept;
    femode_t mode;
    fexcept_t flags;
    EACH (i, roundings) {
        printf("rounding %x:", (unsigned)roundings[i]);
        SHOW_INTEGER(fesetround(roundings[i]));
        SHOW_INTEGER(fegetround());
        SHOW_AS(double, 8, 8, 1 / three);
        SHOW_AS(long double, 16, 10, -1 / long_three);
        SHOW_AS(double, 8, 8, exp(three));
        SHOW_AS(float, 4, 4, sinf(three));
        SHOW_AS(double, 8, 8, rint(2.5 * three));
        SHOW_AS(long double, 16, 10, nearbyintl(-2.5L * long_three));
        putchar('\n');
    }
    printf("environment:");
    SHOW_INTEGER(fesetround(FE_UPWARD) + 10 * fegetmode(&mode));
    SHOW_INTEGER(feholdexcept(&kept));
    feraiseexcept(FE_OVERFLOW | FE_INEXACT);
    SHOW_INTEGER(fegetexceptflag(&flags, FE_ALL_EXCEPT));
    SHOW_INTEGER(fetestexceptflag(&flags, FE_OVERFLOW));
    SHOW_INTEGER(fesetexceptflag(&flags, FE_ALL_EXCEPT));
    feraiseexcept(FE_DIVBYZERO | FE_UNDERFLOW | FE_INVALID);
    SHOW_INTEGER(fesetround(FE_DOWNWARD));
    SHOW_INTEGER(fesetexcept(FE_INEXACT));
    SHOW_INTEGER(feupdateenv(&kept));
    SHOW_INTEGER(fegetround());
    SHOW_INTEGER(fesetmode(FE_DFL_MODE));
    SHOW_INTEGER(fegetround());
    SHOW_INTEGER(fesetmode(&mode));
    SHOW_INTEGER(fegetenv(&kept));
    SHOW_INTEGER(fesetenv(FE_DFL_ENV));
    SHOW_INTEGER(feenableexcept(FE_DIVBYZERO));
    SHOW_INTEGER(fegetexcept());
    SHOW_INTEGER(fedisableexcept(FE_DIVBYZERO));
    SHOW_INTEGER(fegetround());
    putchar('\n');
}

int main(void)
{
    drivef();
    drive();
    drivel();
    drivef128();
    the_rest();
    environment();
    return 0;
}

#else /* once per type */

#define COMPLEX _Complex REAL
#define SHOW(expression) SHOW_AS(REAL, sizeof(REAL), USED, expression)
#define SHOW_COMPLEX(expression) SHOW_AS(COMPLEX, sizeof(REAL), USED, expression)
#define NAMED(name) {#name, F(name)}

static const struct {
    const char *name;
    REAL (*call)(REAL);
} F(unary)[] = {
    NAMED(acos),  NAMED(acosh),     NAMED(asin),      NAMED(asinh),    NAMED(atan),   NAMED(atanh),
    NAMED(cbrt),  NAMED(ceil),      NAMED(cos),       NAMED(cosh),     NAMED(erf),    NAMED(erfc),
    NAMED(exp),   NAMED(exp10),     NAMED(exp2),      NAMED(expm1),    NAMED(fabs),   NAMED(floor),
    NAMED(j0),    NAMED(j1),        NAMED(lgamma),    NAMED(log),      NAMED(log10),  NAMED(log1p),
    NAMED(log2),  NAMED(logb),      NAMED(nearbyint), NAMED(nextdown), NAMED(nextup), NAMED(rint),
    NAMED(round), NAMED(roundeven), NAMED(sin),       NAMED(sinh),     NAMED(sqrt),   NAMED(tan),
    NAMED(tanh),  NAMED(tgamma),    NAMED(trunc),     NAMED(y0),       NAMED(y1),
};

static const struct {
    const char *name;
    REAL (*call)(REAL, REAL);
} F(binary)[] = {
    NAMED(atan2),
    NAMED(copysign),
    NAMED(fdim),
    NAMED(fmax),
    NAMED(fmaximum),
    NAMED(fmaximum_mag),
    NAMED(fmaximum_mag_num),
    NAMED(fmaximum_num),
    NAMED(fmaxmag),
    NAMED(fmin),
    NAMED(fminimum),
    NAMED(fminimum_mag),
    NAMED(fminimum_mag_num),
    NAMED(fminimum_num),
    NAMED(fminmag),
    NAMED(fmod),
    NAMED(hypot),
    NAMED(nextafter),
    NAMED(pow),
    NAMED(remainder),
};

static const struct {
    const char *name;
    COMPLEX (*call)(COMPLEX);
} F(on_complex)[] = {
    NAMED(cacos), NAMED(cacosh), NAMED(casin), NAMED(casinh), NAMED(catan),  NAMED(catanh),
    NAMED(ccos),  NAMED(ccosh),  NAMED(cexp),  NAMED(clog),   NAMED(clog10), NAMED(conj),
    NAMED(cproj), NAMED(csin),   NAMED(csinh), NAMED(csqrt),  NAMED(ctan),   NAMED(ctanh),
};

static COMPLEX F(make_complex)(double real, double imaginary)
{
    COMPLEX z;
    __real__ z = real;
    __imag__ z = imaginary;
    return z;
}

static void F(integers)(REAL x)
{
    REAL whole = 0, other = 0, payload = 77;
    int small = 0;
    SHOW_INTEGER(F(lrint)(x));
    SHOW_INTEGER(F(lround)(x));
    SHOW_INTEGER(F(llrint)(x));
    SHOW_INTEGER(F(llround)(x));
    SHOW_INTEGER(F(ilogb)(x));
    SHOW_INTEGER(F(llogb)(x));
    SHOW_INTEGER(F(fromfp)(x, FP_INT_UPWARD, 20));
    SHOW_INTEGER(F(fromfpx)(x, FP_INT_DOWNWARD, 64));
    SHOW_INTEGER(F(ufromfp)(x, FP_INT_TONEAREST, 12));
    SHOW_INTEGER(F(ufromfpx)(x, FP_INT_TOWARDZERO, 33));
    SHOW(F(ldexp)(x, 5));
    SHOW(F(scalbn)(x, -1040));
    SHOW(F(scalbln)(x, 7L));
    SHOW(F(jn)(3, x));
    SHOW(F(yn)(2, x));
    SHOW(F(frexp)(x, &small));
    SHOW_INTEGER(small);
    SHOW(F(modf)(x, &whole));
    SHOW(whole);
    SHOW(F(remquo)(x, (REAL)1.5, &small));
    SHOW_INTEGER(small);
#if USED != 16
    SHOW_INTEGER(finite(x) + 2 * isinf(x) + 8 * isnan(x));
#endif
    F(sincos)(x, &whole, &other);
    SHOW(whole);
    SHOW(other);
    SHOW(F(fma)(x, (REAL)1.25, (REAL)-3));
    SHOW_INTEGER(F(canonicalize)(&whole, &x));
    SHOW(whole);
    SHOW(F(getpayload)(&x));
    SHOW_INTEGER(F(setpayload)(&whole, payload));
    SHOW(F(getpayload)(&whole));
    SHOW_INTEGER(F(setpayloadsig)(&other, payload));
    SHOW_INTEGER(issignaling(other));
    SHOW_INTEGER(F(totalorder)(&whole, &other) + 2 * F(totalordermag)(&x, &whole));
    SHOW_INTEGER(fpclassify(x) + 16 * issignaling(x) + 32 * !!signbit(x));
    SHOW_INTEGER(iseqsig(x, (REAL)1));
    SHOW(F(nan)("0x123"));
}

static void F(drive)(void)
{
    EACH (f, F(unary)) {
        printf("%zu %s:", sizeof(REAL), F(unary)[f].name);
        EACH (i, numbers)
            SHOW(F(unary)[f].call(numbers[i]));
        putchar('\n');
    }
    EACH (f, F(binary)) {
        printf("%zu %s:", sizeof(REAL), F(binary)[f].name);
        EACH (i, numbers)
            EACH (j, seconds)
                SHOW(F(binary)[f].call(numbers[i], seconds[j]));
        putchar('\n');
    }
    EACH (f, F(on_complex)) {
        printf("%zu %s:", sizeof(REAL), F(on_complex)[f].name);
        EACH (i, numbers)
            EACH (j, seconds)
                SHOW_COMPLEX(F(on_complex)[f].call(F(make_complex)(numbers[i], seconds[j])));
        putchar('\n');
    }
    EACH (i, numbers) {
        COMPLEX z = F(make_complex)(numbers[i], seconds[i % COUNT(seconds)]);
        printf("%zu number %zu:", sizeof(REAL), i);
        F(integers)(numbers[i]);
        SHOW(F(cabs)(z));
        SHOW(F(carg)(z));
        SHOW(F(creal)(z));
        SHOW(F(cimag)(z));
        SHOW_COMPLEX(F(cpow)(z, F(make_complex)(1.5, -0.5)));
        putchar('\n');
    }
}

#undef REAL
#undef USED
#undef F
#undef COMPLEX
#undef SHOW
#undef SHOW_COMPLEX
#undef NAMED
#endif
