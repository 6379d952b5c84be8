/* Calls the functions of libc for streams, formats, files, directories, time, locales, patterns and
 * messages. Its argument is a folder of its own, initially empty. Its output depends on nothing
 * else, and neither does the number of calls of each function. */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-result"
#include <argp.h>
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <fmtmsg.h>
#include <fnmatch.h>
#include <ftw.h>
#include <fts.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <ifaddrs.h>
#include <langinfo.h>
#include <libintl.h>
#include <locale.h>
#include <mntent.h>
#include <monetary.h>
#include <net/ethernet.h>
#include <netdb.h>
#include <netinet/ether.h>
#include <nl_types.h>
#include <printf.h>
#include <pwd.h>
#include <regex.h>
#include <resolv.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>
#include <wordexp.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EACH(i, array) for (size_t i = 0; i < COUNT(array); i++)

/* One call, one line: evaluated in the order written, unlike the arguments of one printf. */
#define DO(call) printf("%s %ld\n", #call, (long)(call))

static void formats(void)
{
    static const double reals[] = {0, -1.5, 3.14159265358979, 1e100, 1e-300, 5e-324};
    char room[500], *allocated;
    wchar_t wide[300];
    int n = 0;
    EACH (i, reals) {
        double x = reals[i];
        printf("%f %.3e %G %a %+012.4f %-14.2f|%#.0f %'f ", x, x, x, x, x, x, x, x);
        printf("%Lf %Le\n", (long double)x, 3 * (long double)x);
    }
    printf("%d %5d %-5d| %05d %+d %i %u %x %#X %o\n", -1, 2, 3, 4, 5, 6, 7u, 0xabu, 0xcdu, 8u);
    printf("%hhd %hd %ld %lld %zd %jd %td\n", (signed char)-9, (short)10, 11l, 12ll, (size_t)13,
           (intmax_t)14, (ptrdiff_t)15);
    printf("%s|%10s|%-10s|%.3s|%c|%5c|%%|%ls|%lc|%p|%n\n", "text", "right", "left", "cut off", 'c',
           'd', L"wide", L'w', NULL, &n);
    printf("%2$s %1$*3$d %4$.2f %d\n" + 0, 42, "second", 6, 2.5);
    errno = ENOENT;
    printf("%m %#m %d\n", n);
    snprintf(room, 10, "%s", "longer than that");
    sprintf(room + 20, "%d", 7);
    asprintf(&allocated, "%s %s %0300d", room, room + 20, 5);
    puts(allocated);
    free(allocated);
    dprintf(1, "%s", "");
    swprintf(wide, COUNT(wide), L"%d %ls %s %f %5lc %x", 4, L"in", "narrow", 1.25, L'x', 255);
    printf("%ls\n", wide);
    fprintf(stdout, "%*d %-*d| %.*f\n", 6, 1, 6, 2, 3, 2.0 / 3);
    int types[8];
    DO(parse_printf_format("%d %s %f %ld", COUNT(types), types));

    int a = 0, b = 0, c = 0;
    long l = 0;
    float f = 0;
    double d = 0;
    char word[20] = "", set[20] = "", *made = NULL;
    wchar_t wide_word[20] = L"";
    sscanf("12 0x1f 077 -5 1.5 2.5e3 word [abc] x", "%d %i %i %ld %f %lf %19s [%19[a-c]]", &a, &b,
           &c, &l, &f, &d, word, set);
    printf("%d %d %d %ld %g %g %s %s\n", a, b, c, l, f, d, word, set);
    sscanf("allocate 77%", "%ms %n%d%%", &made, &b, &a);
    printf("%s %d %d\n", made, a, b);
    free(made);
    swscanf(L"9 wide 0x10 2.5", L"%d %19ls %x %lf", &a, wide_word, (unsigned *)&b, &d);
    printf("%d %ls %d %g\n", a, wide_word, b, d);
}

static ssize_t cookie_read(void *at, char *to, size_t size)
{
    size_t n = size < 5 ? size : 5;
    memset(to, 'k', n);
    return (*(int *)at)-- > 0 ? (ssize_t)n : 0;
}

static ssize_t cookie_write(void *at, const char *from, size_t size)
{
    *(int *)at += from[0];
    return (ssize_t)size;
}

static int cookie_close(void *at) { return *(int *)at & 0; }

static void streams(void)
{
    char line[200], *text = NULL;
    size_t size = 0;
    FILE *file = fopen("file", "w+");
    setvbuf(file, NULL, _IOFBF, 300);
    for (int i = 0; i < 200; i++)
        fprintf(file, "line %d with %s\n", i, i % 7 ? "text" : "more text than others have");
    fputs("end", file);
    fputc('!', file);
    putc('\n', file);
    fwrite("block\n", 1, 6, file);
    DO(ftell(file));
    fflush(file);
    rewind(file);
    fgets(line, sizeof line, file);
    printf("%s%c%c\n", line, fgetc(file), getc(file));
    ungetc('?', file);
    printf("%c\n", getc_unlocked(file));
    fpos_t position;
    fgetpos(file, &position);
    fseek(file, 100, SEEK_SET);
    DO(getline(&text, &size, file));
    DO(getdelim(&text, &size, 'x', file));
    fsetpos(file, &position);
    fseeko(file, -20, SEEK_END);
    DO(fread(line, 1, 50, file));
    DO(ftello(file));
    DO(!feof(file));
    DO(!ferror(file));
    DO(fileno(file) > 2);
    clearerr(file);
    DO(__fbufsize(file));
    DO(!__freading(file));
    DO(!__fwriting(file));
    DO(!__freadable(file));
    DO(!__fwritable(file));
    DO(__fpending(file));
    DO(__fsetlocking(file, FSETLOCKING_QUERY));
    __fpurge(file);
    flockfile(file);
    funlockfile(file);
    DO(ftrylockfile(file));
    funlockfile(file);
    putw(12345, file);
    fflush_unlocked(file);
    fseek(file, -4, SEEK_CUR);
    DO(getw(file));
    fclose(file);

    file = fopen("file", "a");
    setbuf(file, NULL);
    fputs_unlocked("appended\n", file);
    setlinebuf(file);
    fwrite_unlocked("x\ny", 1, 3, file);
    file = freopen("file", "r", file);
    printf("%s", fgets_unlocked(line, sizeof line, file));
    DO(fread_unlocked(line, 1, 10, file));
    fclose(file);

    file = fdopen(open("wide", O_RDWR | O_CREAT, 0600), "w+");
    DO(fwide(file, 1));
    fwprintf(file, L"%ls %d\n", L"gr\u00fcn", 5);
    fputws(L"second line\n", file);
    fputwc(L'z', file);
    putwc(L'\n', file);
    rewind(file);
    wchar_t wide[50];
    printf("%ls", fgetws(wide, 50, file));
    printf("%lc%lc\n", fgetwc(file), getwc(file));
    ungetwc(L'u', file);
    DO(fwscanf(file, L"%49ls", wide));
    fclose(file);

    file = fmemopen(line, 50, "w+");
    fputs("in memory", file);
    rewind(file);
    DO(fscanf(file, "%s", line + 100));
    fclose(file);
    file = open_memstream(&text, &size);
    fprintf(file, "%0500d", 3);
    fseek(file, 100, SEEK_SET);
    fclose(file);
    printf("%zu\n", size);
    wchar_t *wide_text;
    file = open_wmemstream(&wide_text, &size);
    fwprintf(file, L"%d", 1234);
    fclose(file);
    printf("%ls %zu\n", wide_text, size);
    free(wide_text);
    free(text);
    int left = 4;
    cookie_io_functions_t io = {cookie_read, cookie_write, NULL, cookie_close};
    file = fopencookie(&left, "r+", io);
    DO(fread(line, 1, 30, file));
    fclose(file);
    file = fopencookie(&left, "w", io);
    fputs("cookie", file);
    fclose(file);
    printf("%d\n", left);
    file = tmpfile();
    fputs("t", file);
    fclose(file);
    perror("perror");
    psignal(6, "psignal");
    DO(rename("file", "renamed"));
    DO(remove("wide"));
    fcloseall();
}

static int on_file(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    printf("%s %d %d %d\n", path, S_ISREG(status->st_mode), kind, at->level);
    return 0;
}

static int on_old_file(const char *path, const struct stat *status, int kind)
{
    return status->st_nlink == 0 && kind == 77 && *path == 0;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void folders(void)
{
    struct stat status;
    struct statvfs fs;
    struct statx extended;
    char path[4096];
    DO(mkdir("d", 0700));
    DO(mkdirat(AT_FDCWD, "d/e", 0755));
    DO(mkfifo("d/pipe", 0600));
    for (int i = 0; i < 5; i++) {
        sprintf(path, "d/f%d", 12 - i * 2);
        close(creat(path, 0644));
        truncate(path, i * 100);
    }
    DO(link("d/f4", "d/hard"));
    DO(symlink("f4", "d/soft"));
    DO(symlinkat("x", AT_FDCWD, "d/n"));
    DO(readlink("d/soft", path, 50));
    printf("%.2s\n", path);
    DO(stat("d/soft", &status));
    DO(lstat("d/hard", &status));
    DO(status.st_size);
    DO(access("d/f4", R_OK));
    DO(euidaccess("d/f4", W_OK));
    DO(faccessat(AT_FDCWD, "d", X_OK, 0));
    DO(chmod("d/f6", 0600));
    DO(fchmodat(AT_FDCWD, "d/f8", 0640, 0));
    DO(umask(022) > 0777);
    int fd = open("d/f10", O_RDWR), dir = open("d", O_RDONLY | O_DIRECTORY);
    DO(write(fd, "0123456789", 10));
    DO(pread(fd, path, 4, 3));
    DO(lseek(fd, 2, SEEK_SET));
    DO(ftruncate(fd, 700));
    DO(fsync(fd));
    DO(fdatasync(fd));
    DO(posix_fallocate(fd, 0, 800));
    DO(fstat(fd, &status));
    DO(fstatat(dir, "f10", &status, 0));
    DO(fchmod(fd, 0600));
    DO(statvfs("d", &fs));
    DO(fstatvfs(fd, &fs));
    DO(statx(dir, "f4", 0, STATX_SIZE, &extended));
    DO(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
    DO(pwrite(fd, "x", 1, 50));
    DO(lockf(fd, F_LOCK, 0));
    DO(fcntl(fd, F_GETFL) & O_ACCMODE);
    close(fd);
    struct utimbuf old = {1000, 2000};
    struct timeval times[2] = {{5, 6}, {7, 8}};
    struct timespec stamps[2] = {{1, 2}, {3, 4}};
    DO(utime("d/f4", &old));
    DO(utimes("d/f4", times));
    DO(utimensat(dir, "f4", stamps, 0));
    stat("d/f4", &status);
    DO(status.st_mtime);
    struct dirent **list;
    int n = scandir("d", &list, visible, alphasort);
    for (int i = 0; i < n; i++) {
        printf("%s ", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    n = scandirat(AT_FDCWD, "d", &list, NULL, versionsort);
    for (int i = 0; i < n; i++) {
        printf("%s ", list[i]->d_name);
        free(list[i]);
    }
    free(list);
    DIR *folder = opendir("d");
    long start = telldir(folder);
    int entries = 0;
    while (readdir(folder))
        entries++;
    seekdir(folder, start);
    rewinddir(folder);
    struct dirent room, *entry;
    while (readdir_r(folder, &room, &entry) == 0 && entry)
        entries++;
    DO(entries);
    DO(dirfd(folder) > 2);
    closedir(folder);
    folder = fdopendir(dir);
    closedir(folder);
    chdir("d");
    printf("%s %d\n", strrchr(getcwd(path, sizeof path), '/'), chdir(".."));
    char *absolute = realpath("d/soft", NULL), *here = get_current_dir_name();
    printf("%s\n", absolute + strlen(here));
    free(absolute);
    free(here);
    nftw("d/e", on_file, 5, FTW_PHYS);
    DO(ftw("d", on_old_file, 5));
    char *roots[] = {(char *)"d", NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *node; (node = fts_read(tree));)
        printf("%s:%d ", node->fts_name, node->fts_info);
    fts_close(tree);
    glob_t found;
    puts("");
    DO(glob("d/f*", 0, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++)
        printf(" %s", found.gl_pathv[i]);
    globfree(&found);
    puts("");
    DO(glob("{d,x}/[fh]*[!0]", GLOB_BRACE | GLOB_MARK, NULL, &found));
    DO(found.gl_pathc);
    globfree(&found);
    wordexp_t words;
    setenv("DRIVE", "value", 1);
    DO(wordexp("a $DRIVE \"${DRIVE}s\" d/f1* $((3*4)) 'q u'", &words, WRDE_NOCMD));
    for (size_t i = 0; i < words.we_wordc; i++)
        printf(" %s", words.we_wordv[i]);
    wordfree(&words);
    puts("");
    DO(unlink("d/n"));
    DO(unlinkat(AT_FDCWD, "d/pipe", 0));
    DO(rmdir("d/e"));
    char name[] = "tmpXXXXXX", folder_name[] = "dirXXXXXX", suffixed[] = "tmpXXXXXX.c";
    DO(close(mkstemp(name)));
    DO(close(mkstemps(suffixed, 2)));
    DO(mkdtemp(folder_name) != NULL);
    DO(unlink(name));
    DO(unlink(suffixed));
    rmdir(folder_name);
    DO(renameat(AT_FDCWD, "d/f8", AT_FDCWD, "d/g8"));
    DO(getxattr("d", "user.x", path, 1));
    DO(fnmatch("*.[ch]", "x.c", 0));
    DO(fnmatch("a?[!b]*", "axbc", FNM_PATHNAME));
    DO(fnmatch("+(ab|c)", "abcab", FNM_EXTMATCH));
}

static void moments(void)
{
    static const time_t times[] = {0, 951782400, 1700000000, -86400 * 365l, 4102444800};
    static const char *const zones[] = {"UTC0", "CET-1CEST,M3.5.0,M10.5.0/3",
                                        "EST5EDT,M3.2.0,M11.1.0"};
    char text[200], room[50];
    wchar_t wide[100];
    EACH (z, zones) {
        setenv("TZ", zones[z], 1);
        tzset();
        EACH (i, times) {
            struct tm tm, other = {0};
            localtime_r(&times[i], &tm);
            strftime(text, sizeof text, "%F %T %Z %z %a %B %j %U %V %p %e %G %s %c", &tm);
            printf("%s\n%s", text, asctime_r(&tm, room));
            DO(mktime(&tm));
            gmtime_r(&times[i], &tm);
            DO(timegm(&tm));
            DO(wcsftime(wide, COUNT(wide), L"%A %d %b %y %I %r", &tm));
            printf("%s%s", ctime_r(&times[i], text), asctime(localtime(&times[i])));
            char *rest = strptime("2024-02-29 13:14:15 Thu Feb", "%Y-%m-%d %H:%M:%S %a %b", &other);
            printf("%d %d %s\n", other.tm_yday, gmtime(&times[i])->tm_wday, rest);
            DO(timelocal(&other));
            printf("%s", ctime(&times[i]));
        }
    }
    struct timespec now;
    struct timeval day;
    DO(clock_gettime(CLOCK_REALTIME, &now));
    DO(gettimeofday(&day, NULL));
    DO(clock() < 0);
    DO(time(NULL) > 1700000000);
    DO(difftime(5, 3));
    DO(timespec_get(&now, TIME_UTC));
}

static void locales(void)
{
    static const char *const charsets[] = {"UTF-16LE", "UTF-32", "ISO-8859-1",
                                           "UCS-4BE",  "UTF-7",  "ASCII//TRANSLIT",
                                           "CP1252",   "EUC-JP", "WCHAR_T"};
    char text[200];
    DO(setlocale(LC_ALL, "C.UTF-8") != NULL);
    EACH (i, charsets) {
        iconv_t to = iconv_open(charsets[i], "UTF-8"), from = iconv_open("UTF-8", charsets[i]);
        char in[] = "text \303\274 \342\202\254", *at = in, *out = text;
        size_t left = strlen(in), room = sizeof text;
        size_t lost = iconv(to, &at, &left, &out, &room);
        printf("%s %zd %zu %zu\n", charsets[i], (ssize_t)lost, left, sizeof text - room);
        char back[100], *middle = text, *end = back;
        size_t length = sizeof text - room, free_room = sizeof back;
        if (from != (iconv_t)-1)
            DO(iconv(from, &middle, &length, &end, &free_room));
        iconv_close(to);
        if (from != (iconv_t)-1)
            iconv_close(from);
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", NULL), copy = duplocale(c), old = uselocale(copy);
    printf("%s %s\n", nl_langinfo(CODESET), nl_langinfo_l(DAY_3, c));
    printf("%s %g\n", localeconv()->decimal_point, strtod_l("2.5", NULL, c));
    DO(strftime_l(text, 100, "%A", gmtime(&(time_t){0}), c));
    strfmon(text, sizeof text, "%n %i", 1234.5, -5.25);
    strfmon_l(text, sizeof text, c, "%#5n", 12.5);
    printf("%s %d\n", text, rpmatch("yes") + 2 * rpmatch("no"));
    uselocale(old);
    freelocale(copy);
    freelocale(c);
    bindtextdomain("drive", "/nowhere");
    bind_textdomain_codeset("drive", "UTF-8");
    printf("%s %s %s\n", textdomain("drive"), gettext("message"), ngettext("one", "many", 3));
    printf("%s %s\n", dgettext("drive", "second"), dcngettext("x", "a", "b", 1, LC_MESSAGES));
    nl_catd catalogue = catopen("nothing", 0);
    DO(catalogue == (nl_catd)-1);
    setlocale(LC_ALL, "C");
}

static void patterns(void)
{
    static const char *const expressions[] = {
        "a(b|c)*d",    "^[[:alpha:]_][[:alnum:]_]*$",
        "(x+)(y?)\\1", "[^a-c]{2,4}z",
        "\\<word\\>",  "(a*)+b.|c$",
        "(",
    };
    static const char *const texts[] = {"abcbd",    "an_identifier9", "xxyxx",    "qqqz",
                                        "a word b", "aaab!",          "nothing c"};
    for (int flags = 0; flags <= (REG_EXTENDED | REG_ICASE); flags++)
        EACH (i, expressions) {
            regex_t compiled;
            regmatch_t match[3];
            char text[100];
            int error = regcomp(&compiled, expressions[i], flags);
            regerror(error, &compiled, text, sizeof text);
            printf("%s", text);
            if (error == 0) {
                EACH (t, texts)
                    if (regexec(&compiled, texts[t], 3, match, 0) == 0)
                        printf(" %zu:%d-%d,%d", t, match[0].rm_so, match[0].rm_eo, match[1].rm_so);
                regfree(&compiled);
            }
            puts("");
        }
    struct re_pattern_buffer buffer = {0};
    struct re_registers registers = {0};
    re_set_syntax(RE_SYNTAX_EMACS);
    printf("%s", re_compile_pattern("o+b*", 4, &buffer) ? "error" : "compiled");
    printf(" %ld", (long)re_search(&buffer, "xxfoobar", 8, 0, 8, &registers));
    printf(" %ld", (long)re_match(&buffer, "oob", 3, 0, NULL));
    printf(" %ld\n", (long)re_search_2(&buffer, "fo", 2, "ob", 2, 0, 4, NULL, 4));
    regfree(&buffer);
}

static void names(void)
{
    struct in_addr v4;
    struct in6_addr v6;
    char text[300];
    unsigned char packed[300];
    DO(inet_pton(AF_INET, "192.168.1.20", &v4));
    printf("%s %s\n", inet_ntoa(v4), inet_ntop(AF_INET, &v4, text, sizeof text));
    DO(inet_pton(AF_INET6, "fe80::1:2", &v6));
    printf("%s\n", inet_ntop(AF_INET6, &v6, text, sizeof text));
    DO(inet_aton("10.2", &v4));
    DO(inet_addr("1.2.3.4"));
    DO(inet_network("1.2"));
    DO(inet_netof(v4));
    DO(inet_lnaof(v4));
    DO(htonl(0x1234));
    DO(htons(0x12));
    struct ether_addr *ether = ether_aton("1:2:3:aa:b:c");
    printf("%s\n", ether_ntoa(ether));
    int length = dn_comp("www.example.org", packed, sizeof packed, NULL, NULL);
    DO(length);
    DO(dn_expand(packed, packed + length, packed, text, sizeof text));
    puts(text);
    DO(ns_name_pton("a.b", packed, sizeof packed));
    DO(ns_name_ntop(packed, text, sizeof text));
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found = NULL;
    hints.ai_socktype = SOCK_STREAM;
    DO(getaddrinfo("127.0.0.1", "80", &hints, &found));
    DO(getnameinfo(found->ai_addr, found->ai_addrlen, text, 100, text + 100, 20,
                   NI_NUMERICHOST | NI_NUMERICSERV));
    printf(" %s %s %s\n", text, text + 100, gai_strerror(EAI_NONAME));
    freeaddrinfo(found);
    struct passwd entry, *user = getpwnam("root");
    struct group *group = getgrgid(0);
    printf("%s %s\n", user->pw_name, group->gr_name);
    getpwuid_r(0, &entry, text, sizeof text, &user);
    printf("%s %d\n", user->pw_dir, getgrnam("no such group") != NULL);
    setpwent();
    printf("%s\n", getpwent()->pw_name);
    endpwent();
    setgrent();
    printf("%s\n", getgrent()->gr_name);
    endgrent();
    FILE *table = fopen("table", "w+");
    fputs("dev /mnt ext4 rw,noatime 0 0\n# comment\nx /y z opts=1 1 2\n", table);
    fclose(table);
    table = setmntent("table", "r");
    for (struct mntent *mount; (mount = getmntent(table));)
        printf("%s %s\n", mount->mnt_dir, hasmntopt(mount, "noatime") ? "noatime" : "-");
    endmntent(table);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    if (key == 'n' || key == ARGP_KEY_ARG)
        printf("%c %s %d\n", key == 'n' ? 'n' : 'a', argument, state->next);
    return key == 'n' || key == ARGP_KEY_ARG ? 0 : ARGP_ERR_UNKNOWN;
}

static void messages(void)
{
    static const struct argp_option options[] = {{"number", 'n', "N", 0, "a number", 0}, {0}};
    struct argp argp = {options,
                        parse,
                        "FILE",
                        "It does something long enough to be wrapped into several lines when the "
                        "help is shown.\vAnd more.",
                        NULL,
                        NULL,
                        NULL};
    char words[][12] = {"drive", "-n", "5", "--number=6", "file"};
    char *arguments[] = {words[0], words[1], words[2], words[3], words[4], NULL};
    DO(argp_parse(&argp, 5, arguments, 0, NULL, NULL));
    argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, words[0]);
    program_invocation_name = program_invocation_short_name = words[0];
    error_print_progname = NULL;
    fflush(stdout);
    error(0, ENOENT, "error %d", 1);
    error_at_line(0, 0, "file.c", 12, "at a line");
    errno = EACCES;
    warn("warn %s", "it");
    warnx("warnx");
    fmtmsg(MM_PRINT, "drive:part", MM_WARNING, "text", "do it", "drive:1");
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1]))
        return 2;
    formats();
    streams();
    folders();
    moments();
    locales();
    patterns();
    names();
    messages();
    return 6;
}
