/* Calls the functions of libc that compute: strings, characters, numbers, sorting, searching,
 * memory. Its output depends on nothing outside it, and neither does the number of calls of each
 * function. */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-result"
#include <argz.h>
#include <ctype.h>
#include <envz.h>
#include <getopt.h>
#include <inttypes.h>
#include <locale.h>
#include <malloc.h>
#include <obstack.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uchar.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EACH(i, array) for (size_t i = 0; i < COUNT(array); i++)

static unsigned long sum = 5381;

static void add(long value) { sum = sum * 33 + (unsigned long)value; }

static void say(const char *what)
{
    printf("%-12s %016lx\n", what, sum);
    sum = 5381;
}

static int sign(int value) { return (value > 0) - (value < 0); }

/* Every length through the vector code's cases, at several alignments, with the searched byte at
 * the end, in the middle, and missing. */
static void memory_blocks(void)
{
    static const size_t lengths[] = {0,  1,  2,  3,   7,   8,   15,  16,  17,  31,   32,   33,   63,
                                     64, 65, 96, 127, 128, 129, 255, 256, 257, 1000, 4096, 70000};
    static char from[80000], to[80000];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)('a' + i % 23);
    EACH (i, lengths)
        for (size_t shift = 0; shift < 48; shift += 9) {
            size_t n = lengths[i];
            char *source = from + shift, *target = to + 40 - shift % 40;
            memcpy(target, source, n);
            add(memcmp(target, source, n));
            add((char *)mempcpy(target, source + 1, n) - target);
            add(sign(memcmp(target, source, n)) + 2 * sign(bcmp(target, source + 1, n)));
            memmove(target + 3, target, n);
            memmove(target, target + 2, n);
            bcopy(target, target + 1, n);
            memset(target + n, 'z', 5);
            char *found = memchr(target, 'z', n + 5);
            add(found ? found - target : -1);
            found = memrchr(target, 'b', n);
            add(found ? found - target : -1);
            add((char *)rawmemchr(target, 'z') - target);
            found = memmem(source, n, "lmn", 3);
            add(found ? found - source : -1);
            found = memccpy(target, source, 'w', n);
            add(found ? found - target : -1);
            bzero(target, n / 2);
            explicit_bzero(target + n / 2, n - n / 2);
            memfrob(target, n < 100 ? n : 100);
            if (n >= 2)
                swab(source, target, (ssize_t)(n & ~1ul));
            add(target[n / 3]);
        }
    say("memory");
}

static void strings(void)
{
    static const size_t lengths[] = {0,  1,  5,  15, 16,  17,  30,  31,  32,  33,  47,
                                     63, 64, 65, 95, 127, 128, 200, 255, 256, 300, 5000};
    static char one[6000], two[6000], three[12000];
    EACH (i, lengths)
        for (size_t shift = 0; shift < 40; shift += 13) {
            size_t n = lengths[i];
            char *a = one + shift, *b = two + 40 - shift;
            for (size_t at = 0; at < n; at++)
                a[at] = (char)('A' + at % 57);
            a[n] = 0;
            strcpy(b, a);
            add((long)strlen(b) + (long)strnlen(a, 100));
            add(strcmp(a, b) + strncmp(a, b, 20) + strcasecmp(a, b) + strncasecmp(a, b, 33));
            if (n)
                b[n - 1]++;
            add(sign(strcmp(a, b)) + sign(strncmp(a, b, n)) * 2 + sign(strcasecmp(a, b)) * 4);
            add(sign(strverscmp("a12", "a9")) + sign(strcoll(a, b)));
            *three = 0;
            strcat(three, a);
            strncat(three, b, n / 2);
            add(stpcpy(three + n, b) - three);
            add(stpncpy(three, a, n + 3) - three);
            strncpy(three, b, 40);
            add((long)strspn(a, "ABCDEFGH") + (long)strcspn(a, "XYZ"));
            char *found[] = {strchr(a, 'Q'),   strrchr(a, 'C'),      strchrnul(a, '?'),
                             strstr(a, "MNO"), strcasestr(a, "mno"), strpbrk(a, "xyz"),
                             index(a, 'D'),    rindex(a, 'E')};
            EACH (f, found)
                add(found[f] ? found[f] - a : -1);
            char *copy = strdup(a), *part = strndup(b, 50);
            add(copy[n / 2] + part[0]);
            free(copy);
            free(part);
            add((long)strxfrm(three, a, sizeof three));
        }
    char words[] = "one two,three;;four", *rest = words, *state, *word;
    while ((word = strsep(&rest, " ,;")))
        add(*word);
    char again[] = " alpha beta  gamma ";
    for (word = strtok_r(again, " ", &state); word; word = strtok_r(NULL, " ", &state))
        add(word[1]);
    char third[] = "x-y-z";
    for (word = strtok(third, "-"); word; word = strtok(NULL, "-"))
        add(*word);
    for (int error = 0; error < 135; error += 3) {
        char room[80];
        add(strerror(error)[0] + strerror_r(error, room, sizeof room)[0]);
        const char *name = strerrorname_np(error);
        add(name ? name[1] : 0);
    }
    add(strsignal(11)[0] + sigabbrev_np(9)[0] + sigdescr_np(15)[0]);
    add(ffs(96) + ffsl(1l << 40) + ffsll(1ll << 50) + *basename("/a/bc"));
    say("strings");
}

/* The functions that -D_FORTIFY_SOURCE calls if the size of the destination is known. Several of
 * them fall through into the unchecked function. */
void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__mempcpy_chk(void *, const void *, size_t, size_t);
void *__memset_chk(void *, int, size_t, size_t);
char *__strcpy_chk(char *, const char *, size_t);
char *__stpcpy_chk(char *, const char *, size_t);
char *__strncpy_chk(char *, const char *, size_t, size_t);
char *__stpncpy_chk(char *, const char *, size_t, size_t);
char *__strcat_chk(char *, const char *, size_t);
char *__strncat_chk(char *, const char *, size_t, size_t);
int __snprintf_chk(char *, size_t, int, size_t, const char *, ...);
int __sprintf_chk(char *, int, size_t, const char *, ...);
wchar_t *__wcscpy_chk(wchar_t *, const wchar_t *, size_t);
wchar_t *__wmemcpy_chk(wchar_t *, const wchar_t *, size_t, size_t);
wchar_t *__wmemmove_chk(wchar_t *, const wchar_t *, size_t, size_t);
wchar_t *__wmempcpy_chk(wchar_t *, const wchar_t *, size_t, size_t);
wchar_t *__wmemset_chk(wchar_t *, wchar_t, size_t, size_t);

static void fortified(void)
{
    static const size_t lengths[] = {0, 1, 5, 17, 40, 70, 130, 260, 1000, 5000, 9000};
    static char from[10000], to[10000];
    static wchar_t wide[10000], other[10000];
    EACH (i, lengths) {
        size_t n = lengths[i], room = sizeof to;
        memset(from, 'm', n);
        from[n] = 0;
        add(((char *)__memcpy_chk(to, from, n, room))[n / 2]);
        add(((char *)__memmove_chk(to + 1, to, n, room - 1))[n / 2]);
        add((char *)__mempcpy_chk(to, from, n, room) - to);
        add(((char *)__memset_chk(to, 's', n, room))[n / 3]);
        add(__strcpy_chk(to, from, room)[n]);
        add(__stpcpy_chk(to, from, room) - to);
        add(__strncpy_chk(to, from, n / 2, room)[0]);
        add(__stpncpy_chk(to, from, n / 3, room) - to);
        *to = 0;
        add((long)strlen(__strcat_chk(to, from, room)));
        *to = 0;
        add((long)strlen(__strncat_chk(to, from, 33, room)));
        add(__snprintf_chk(to, room, 1, room, "%zu and %s", n, "more"));
        add(__sprintf_chk(to, 1, room, "%zx", n));
        add(*__wmemset_chk(wide, L'w', n, COUNT(wide)));
        wide[n] = 0;
        add(__wcscpy_chk(other, wide, COUNT(other))[n]);
        add(*__wmemcpy_chk(other + 1, wide, n, COUNT(other) - 1));
        add(*__wmemmove_chk(other, other + 1, n, COUNT(other)));
        add(__wmempcpy_chk(other, wide, n, COUNT(other)) - other);
    }
    say("fortified");
}

static void wide_strings(void)
{
    static const size_t lengths[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 700};
    static wchar_t a[1000], b[1000], c[2000];
    EACH (i, lengths)
        for (size_t shift = 0; shift < 12; shift += 5) {
            size_t n = lengths[i];
            wchar_t *from = a + shift, *to = b + 12 - shift;
            for (size_t at = 0; at < n; at++)
                from[at] = (wchar_t)(L'A' + at % 57);
            from[n] = 0;
            wcscpy(to, from);
            add((long)wcslen(to) + (long)wcsnlen(from, 50));
            add(wcscmp(from, to) + wcsncmp(from, to, 9) + wcscasecmp(from, to) +
                wmemcmp(from, to, n));
            if (n)
                to[n - 1]++;
            add(sign(wcscmp(from, to)) + sign(wcsncasecmp(from, to, n)) + sign(wcscoll(from, to)));
            *c = 0;
            wcscat(c, from);
            wcsncat(c, to, n / 2);
            add(wcpcpy(c, from) - c + (wcpncpy(c, to, n + 2) - c));
            wcsncpy(c, to, 30);
            wchar_t *found[] = {wcschr(from, L'Q'),    wcsrchr(from, L'C'),
                                wcschrnul(from, L'?'), wcsstr(from, L"MNO"),
                                wcspbrk(from, L"xyz"), wmemchr(from, L'D', n)};
            EACH (f, found)
                add(found[f] ? found[f] - from : -1);
            add((long)wcsspn(from, L"ABCD") + (long)wcscspn(from, L"XYZ"));
            wmemset(c, L'#', n);
            wmemcpy(c + 1, from, n);
            wmemmove(c, c + 1, n);
            add(wmempcpy(c, to, n) - c);
            wchar_t *copy = wcsdup(from);
            add(copy[n / 2] + (long)wcsxfrm(c, from, COUNT(c)));
            free(copy);
        }
    wchar_t words[] = L"un deux trois", *state;
    for (wchar_t *word = wcstok(words, L" ", &state); word; word = wcstok(NULL, L" ", &state))
        add(*word);
    add(wcstol(L"-123", NULL, 0) + (long)wcstoul(L"0x7f", NULL, 0) + wcstoll(L"077", NULL, 0));
    add((long)(wcstod(L"1.5e3", NULL) + wcstof(L"2.25", NULL) + wcstold(L"0x1p10", NULL)));
    add((long)wcstoull(L"99", NULL, 10) + wcstoimax(L"5", NULL, 10) + (long)wcstoumax(L"6", 0, 8));
    for (wint_t w = 0; w < 700; w += 13) {
        add(iswalpha(w) * 2 + iswdigit(w) * 4 + iswspace(w) + iswupper(w) + iswpunct(w));
        add(!iswalnum(w) + !iswblank(w) + !iswcntrl(w) + !iswgraph(w) + !iswlower(w));
        add(!iswprint(w) + !iswxdigit(w) + towupper(w) + towlower(w) + wcwidth((wchar_t)w));
        add(!iswctype(w, wctype("alpha")) + towctrans(w, wctrans("toupper")) + wctob(w));
    }
    add(wcswidth(L"width", 9) + btowc('q'));
    say("wide");
}

static void multibyte(void)
{
    static const char *const texts[] = {"plain", "b\377d",
                                        "gr\303\274n \342\202\254 \360\237\230\200"};
    EACH (i, texts) {
        wchar_t wide[40];
        char back[80];
        mbstate_t state = {0};
        const char *from = texts[i];
        add((long)mbstowcs(wide, from, COUNT(wide)));
        add((long)wcstombs(back, wide, sizeof back));
        add((long)mbsrtowcs(wide, &from, COUNT(wide), &state));
        const wchar_t *wide_from = wide;
        memset(&state, 0, sizeof state);
        add((long)wcsrtombs(back, &wide_from, sizeof back, &state));
        from = texts[i];
        memset(&state, 0, sizeof state);
        add((long)mbsnrtowcs(wide, &from, 9, COUNT(wide), &state));
        wide_from = wide;
        memset(&state, 0, sizeof state);
        add((long)wcsnrtombs(back, &wide_from, 4, sizeof back, &state));
        add(mblen(texts[i], 4) + mbtowc(wide, texts[i] + 2, 4) + wctomb(back, L'\u00e9'));
        memset(&state, 0, sizeof state);
        add((long)mbrlen(texts[i], 1, &state) + (long)mbrtowc(wide, texts[i], 4, &state));
        add(mbsinit(&state) + (long)wcrtomb(back, L'\u20ac', &state));
        char16_t c16;
        char32_t c32;
        memset(&state, 0, sizeof state);
        add((long)mbrtoc16(&c16, texts[i], 5, &state) + (long)mbrtoc32(&c32, texts[i], 5, &state));
        memset(&state, 0, sizeof state);
        add((long)c16rtomb(back, u'\u00e9', &state) + (long)c32rtomb(back, U'\u20ac', &state));
    }
    say("multibyte");
}

static void characters(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", NULL);
    for (int i = 0; i < 256; i += 5) {
        add(!isalpha(i) + !isdigit(i) + !isspace(i) + !isupper(i) + !ispunct(i) + !isalnum(i));
        add(!isblank(i) + !iscntrl(i) + !isgraph(i) + !islower(i) + !isprint(i) + !isxdigit(i));
        add(toupper(i) + tolower(i) + !isascii(i) + toascii(i) + _tolower(i));
        add(!isalpha_l(i, c) + !isdigit_l(i, c) + toupper_l(i, c) + tolower_l(i, c));
        add(!iswalpha_l((wint_t)i, c) + (int)towupper_l((wint_t)i, c) + !iswupper_l((wint_t)i, c));
    }
    add(strcasecmp_l("Ab", "aB", c) + strcoll_l("a", "b", c) + strncasecmp_l("x", "X", 1, c));
    add(wcscasecmp_l(L"Ab", L"aB", c) + wcsncasecmp_l(L"x", L"X", 1, c) + *strerror_l(2, c));
    freelocale(c);
    say("characters");
}

static void numbers(void)
{
    static const char *const texts[] = {"0",
                                        "42",
                                        "-17",
                                        "0x1fp3",
                                        "1e308",
                                        "1e-320",
                                        "inf",
                                        "nan(7)",
                                        "  9z",
                                        "077",
                                        "99999999999999999999",
                                        "3.14159265358979"};
    EACH (i, texts) {
        const char *text = texts[i];
        char *end, room[64];
        printf("%a %a %La", strtod(text, &end), (double)strtof(text, NULL), strtold(text, NULL));
        strfromd(room, sizeof room, "%.12g", strtod(text, NULL));
        add(end - text);
        printf(" %s %ld", room, strtol(text, &end, 0));
        strfromf(room, sizeof room, "%e", strtof(text, NULL));
        printf(" %s %lu", room, strtoul(text, &end, 16));
        strfroml(room, sizeof room, "%.3f", strtold(text, NULL));
        strfromf128(room, sizeof room, "%.5g", strtof128(text, NULL));
        printf(" %s %lld %llu\n", room, strtoll(text, NULL, 8), strtoull(text, NULL, 36));
        add(atoi(text) + atol(text) + (long)atoll(text) + (atof(text) > 1));
        add(strtoimax(text, NULL, 0) + (long)strtoumax(text, NULL, 0) + strtoq(text, NULL, 0));
        add((strtof32x(text, NULL) > 1) + (strtof64(text, NULL) < 1) + (strtof64x(text, NULL) > 3));
        int point, negative;
        double x = strtod(text, NULL);
        printf("%s ", ecvt(x, 6, &point, &negative));
        printf("%s %s ", x < 1e20 ? fcvt(x, 3, &point, &negative) : "-", gcvt(x, 7, room));
        printf("%s %s\n", qecvt(x, 4, &point, &negative), qgcvt(x, 5, room));
    }
    div_t d = div(17, -5);
    ldiv_t l = ldiv(-17, 5);
    lldiv_t ll = lldiv(1ll << 40, 3);
    imaxdiv_t m = imaxdiv(-9, 2);
    add(d.quot * d.rem + l.quot * l.rem + ll.quot + m.rem + abs(-3) + labs(-4) + llabs(-5));
    srand(7);
    unsigned seed = 9;
    char state[128];
    add(rand() + rand_r(&seed));
    srandom(11);
    add(random());
    char *old = initstate(5, state, sizeof state);
    add(random());
    setstate(old);
    add(random());
    struct random_data data = {0};
    int32_t value;
    char more[64];
    initstate_r(3, more, sizeof more, &data);
    random_r(&data, &value);
    srandom_r(4, &data);
    add(value);
    srand48(12);
    unsigned short xsubi[3] = {1, 2, 3}, param[7] = {1, 2, 3, 4, 5, 6, 7};
    add(lrand48() + mrand48() + nrand48(xsubi) + jrand48(xsubi) + (long)(1000 * drand48()));
    add((long)(erand48(xsubi) * 1000) + *seed48(xsubi));
    lcong48(param);
    struct drand48_data d48;
    long long_value;
    double double_value;
    srand48_r(5, &d48);
    lrand48_r(&d48, &long_value);
    drand48_r(&d48, &double_value);
    add(long_value + lrand48() + a64l("abc") + *l64a(12345));
    say("numbers");
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int by_value_and(const void *a, const void *b, void *factor)
{
    return *(int *)factor * by_value(a, b);
}

static void visit(const void *node, VISIT order, int depth)
{
    if (order == leaf || order == postorder)
        add(**(const int *const *)node + depth);
}

static void visit_r(const void *node, VISIT order, void *with)
{
    if (order == preorder)
        add(**(const int *const *)node + *(int *)with);
}

static void forget(void *node) { add(*(int *)node); }

static void searching(void)
{
    static int values[5000];
    int minus = -1;
    for (size_t n = 1; n < COUNT(values); n = n * 3 + 1) {
        for (size_t i = 0; i < n; i++)
            values[i] = (int)(i * 7919 % 1009);
        qsort(values, n, sizeof *values, by_value);
        add(values[n / 2]);
        int *found = bsearch(&values[n / 3], values, n, sizeof *values, by_value);
        add(*found);
        qsort_r(values, n, sizeof *values, by_value_and, &minus);
        add(values[n / 4]);
    }
    static struct {
        int key;
        char pad[60];
    } large[300];
    EACH (i, large)
        large[i].key = (int)(i * 31 % 211);
    qsort(large, COUNT(large), sizeof *large, by_value);
    add(large[100].key);
    void *root = NULL;
    for (size_t i = 0; i < 60; i++)
        tsearch(&values[i * 17 % 60], &root, by_value);
    add(tfind(&values[5], &root, by_value) != NULL);
    for (size_t i = 0; i < 60; i += 3)
        tdelete(&values[i], &root, by_value);
    twalk(root, visit);
    twalk_r(root, visit_r, &minus);
    tdestroy(root, forget);
    size_t length = 20;
    int key = 12345;
    add(lfind(&key, values, &length, sizeof *values, by_value) != NULL);
    lsearch(&key, values, &length, sizeof *values, by_value);
    add((long)length);
    static char names[40][8];
    struct hsearch_data table = {0};
    hcreate(60);
    hcreate_r(60, &table);
    EACH (i, names) {
        sprintf(names[i], "key%zu", i);
        ENTRY entry = {names[i], names[i]}, *result;
        hsearch(entry, ENTER);
        hsearch_r(entry, ENTER, &result, &table);
    }
    ENTRY wanted = {"key17", NULL};
    add(*(char *)hsearch(wanted, FIND)->data);
    hdestroy();
    hdestroy_r(&table);
    struct qelem {
        struct qelem *next, *back;
    } first = {NULL, NULL}, second;
    insque(&first, NULL);
    insque(&second, &first);
    add(first.next == &second);
    remque(&second);
    add(first.next == NULL);
    say("searching");
}

#define obstack_chunk_alloc malloc
#define obstack_chunk_free free

static void allocation(void)
{
    static void *blocks[400];
    mallopt(M_MXFAST, 80);
    for (size_t round = 0; round < 6; round++) {
        EACH (i, blocks) {
            size_t size = (i * 37 + round * 11) % 700 * (i % 29 == 0 ? 50 : 1);
            if (i % 3 == round % 3)
                blocks[i] = realloc(blocks[i], size + 1);
            else if (!blocks[i])
                blocks[i] = i % 2 ? malloc(size) : calloc(size / 8 + 1, 8);
            else
                free(blocks[i]), blocks[i] = NULL;
        }
        add((long)malloc_usable_size(blocks[round % 3]) >= 0);
    }
    EACH (i, blocks)
        free(blocks[i]);
    void *aligned;
    add(posix_memalign(&aligned, 256, 1000) + (int)((unsigned long)aligned % 256));
    free(aligned);
    free(aligned_alloc(64, 640));
    free(memalign(4096, 100));
    free(valloc(10));
    free(pvalloc(10));
    free(malloc(300000));
    free(realloc(malloc(200000), 900000));
    free(reallocarray(NULL, 1000, 16));
    malloc_trim(0);
    add(mallinfo2().ordblks > 0);
    add(mallinfo().ordblks > 0);
    struct obstack stack;
    obstack_init(&stack);
    for (int i = 0; i < 2000; i++)
        obstack_int_grow(&stack, i);
    int *grown = obstack_finish(&stack);
    add(grown[1500]);
    add(obstack_printf(&stack, "%d and %s", 12, "more") + (long)obstack_memory_used(&stack));
    obstack_free(&stack, NULL);
    say("allocation");
}

static void vectors(void)
{
    char *argz = NULL, *envz = NULL, *entry = NULL;
    size_t length = 0, envz_length = 0;
    argz_create_sep("one:two:three", ':', &argz, &length);
    argz_add(&argz, &length, "four");
    argz_add_sep(&argz, &length, "five,six", ',');
    argz_append(&argz, &length, "seven", 6);
    argz_insert(&argz, &length, argz, "zero");
    unsigned replaced = 0;
    argz_replace(&argz, &length, "o", "00", &replaced);
    add((long)argz_count(argz, length) + replaced);
    while ((entry = argz_next(argz, length, entry)))
        add(*entry);
    argz_delete(&argz, &length, argz);
    char *parts[10];
    argz_extract(argz, length, parts);
    add(parts[1][0]);
    argz_stringify(argz, length, '+');
    puts(argz);
    free(argz);
    char *const strings[] = {"a", "b", NULL};
    argz_create(strings, &argz, &length);
    add((long)length);
    free(argz);
    envz_add(&envz, &envz_length, "NAME", "value");
    envz_add(&envz, &envz_length, "OTHER", NULL);
    envz_merge(&envz, &envz_length, "X=1", 4, 1);
    add(envz_get(envz, envz_length, "NAME")[1] + (envz_entry(envz, envz_length, "X") != NULL));
    envz_strip(&envz, &envz_length);
    envz_remove(&envz, &envz_length, "X");
    add((long)envz_length);
    free(envz);

    setenv("DRIVE_ONE", "1", 1);
    setenv("DRIVE_ONE", "2", 0);
    putenv("DRIVE_TWO=2");
    add(getenv("DRIVE_ONE")[0] + *secure_getenv("DRIVE_TWO"));
    unsetenv("DRIVE_ONE");
    add(getenv("DRIVE_ONE") == NULL);

    char *options[] = {"drive", "-a", "-b", "v", "file", "--long=7", "--flag", "rest", NULL};
    static const struct option longs[] = {
        {"long", required_argument, NULL, 'l'}, {"flag", no_argument, NULL, 'f'}, {0, 0, NULL, 0}};
    for (int c; (c = getopt_long(8, options, "ab:", longs, NULL)) != -1;)
        add(c + (optarg ? *optarg : 0));
    optind = 0;
    for (int c; (c = getopt_long_only(8, options, "ab:", longs, NULL)) != -1;)
        add(c);
    optind = 0;
    opterr = 0;
    for (int c; (c = getopt(4, options, "a")) != -1;)
        add(c);
    char text[] = "ro,size=5", *at = text, *value;
    char *const tokens[] = {"rw", "ro", "size", NULL};
    while (*at)
        add(getsubopt(&at, tokens, &value));
    say("vectors");
}

int main(void)
{
    characters();
    for (int pass = 0; pass < 2; pass++) {
        memory_blocks();
        strings();
        fortified();
        wide_strings();
        multibyte();
        numbers();
        printf("%s\n", setlocale(LC_ALL, "C.UTF-8") ? "C.UTF-8" : "no C.UTF-8");
    }
    searching();
    allocation();
    vectors();
    clearenv();
    return 5;
}
