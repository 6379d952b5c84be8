/* Calls the functions of libc for threads, processes, signals, contexts, sockets, waiting, memory
 * maps and loading. Its output is always the same, but the number of waits is not. Its argument is
 * a folder of its own, initially empty. */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-result"
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* One call, one line: evaluated in the order written, unlike the arguments of one printf. */
#define DO(call) printf("%s %ld\n", #call, (long)(call))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static sem_t semaphore;
static int turn, initialized, destroyed, cleaned;
static long shared;
static __thread long own = 3;

static void add(int *to, int value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
static void initialize(void) { initialized++; }
static void destroy(void *value) { add(&destroyed, value != NULL); }
static void clean(void *by) { add(&cleaned, *(int *)by); }

static struct timespec soon(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec = 0;
    return at;
}

/* Threads take turns by mutex and condition, then meet at the barrier. */
static void *worker(void *argument)
{
    int number = (int)(long)argument, by = 1;
    char name[16];
    pthread_once(&once, initialize);
    pthread_setspecific(key, argument + 1);
    pthread_cleanup_push(clean, &by);
    for (int round = 0; round < 20; round++) {
        pthread_mutex_lock(&mutex);
        while (turn % 4 != number)
            pthread_cond_wait(&condition, &mutex);
        turn++;
        shared = shared * 3 + number;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_rdlock(&rwlock);
        own++;
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_wrlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_spin_lock(&spin);
        pthread_spin_unlock(&spin);
        free(malloc((size_t)(round * 100 + 1)));
    }
    pthread_barrier_wait(&barrier);
    pthread_getname_np(pthread_self(), name, sizeof name);
    pthread_cleanup_pop(1);
    sem_post(&semaphore);
    if (number == 2)
        pthread_exit((void *)own);
    return (void *)own;
}

static void *endless(void *argument)
{
    int by = 100, state;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    pthread_setcanceltype(argument ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &state);
    pthread_cleanup_push(clean, &by);
    sem_post(&semaphore);
    for (;;)
        argument ? (void)sched_yield() : (void)pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static int c11(void *argument) { return *(int *)argument + 1; }

static void threads(void)
{
    pthread_t ids[4];
    void *result;
    pthread_attr_t attributes;
    pthread_mutexattr_t kind;
    pthread_mutex_t other;
    size_t size;
    void *stack;
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&barrier, NULL, 4);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphore, 0, 0);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    pthread_attr_setguardsize(&attributes, 8192);
    pthread_attr_getstacksize(&attributes, &size);
    for (long i = 0; i < 4; i++)
        pthread_create(&ids[i], i % 2 ? &attributes : NULL, worker, (void *)i);
    for (int i = 0; i < 4; i++)
        sem_wait(&semaphore);
    for (int i = 0; i < 4; i++) {
        pthread_join(ids[i], &result);
        printf("thread %ld\n", (long)result);
    }
    printf("%ld %d %d %d %zu\n", shared, initialized, destroyed, cleaned, size);
    for (long asynchronous = 0; asynchronous < 2; asynchronous++) {
        pthread_create(&ids[0], NULL, endless, (void *)asynchronous);
        sem_wait(&semaphore);
        DO(pthread_cancel(ids[0]));
        pthread_join(ids[0], &result);
        DO(result == PTHREAD_CANCELED);
    }
    DO(cleaned);
    DO(pthread_attr_destroy(&attributes));
    DO(pthread_getattr_np(pthread_self(), &attributes));
    DO(pthread_attr_getstack(&attributes, &stack, &size));
    pthread_attr_destroy(&attributes);
    static const int kinds[] = {PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                                PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < 6; i++) {
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_settype(&kind, kinds[i % 3]);
        pthread_mutexattr_setprotocol(&kind, i > 2 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
        pthread_mutexattr_setrobust(&kind, i == 5 ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED);
        pthread_mutex_init(&other, &kind);
        pthread_mutexattr_destroy(&kind);
        DO(pthread_mutex_lock(&other));
        DO(pthread_mutex_trylock(&other));
        DO(pthread_mutex_unlock(&other));
        struct timespec past = soon();
        DO(pthread_mutex_timedlock(&other, &past) & 0);
        pthread_mutex_unlock(&other);
        pthread_mutex_destroy(&other);
    }
    struct timespec past = soon();
    pthread_mutex_lock(&mutex);
    DO(pthread_cond_timedwait(&condition, &mutex, &past) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
    DO(sem_timedwait(&semaphore, &past) == -1);
    DO(sem_trywait(&semaphore));
    DO(pthread_rwlock_tryrdlock(&rwlock));
    DO(pthread_rwlock_trywrlock(&rwlock));
    DO(pthread_rwlock_unlock(&rwlock));
    DO(pthread_kill(pthread_self(), 0));
    DO(pthread_equal(pthread_self(), pthread_self()));
    DO(pthread_setname_np(pthread_self(), "drive"));
    DO(pthread_key_delete(key));
    thrd_t id;
    mtx_t c11_mutex;
    cnd_t c11_condition;
    int value = 6;
    mtx_init(&c11_mutex, mtx_plain);
    cnd_init(&c11_condition);
    thrd_create(&id, c11, &value);
    thrd_join(id, &value);
    mtx_lock(&c11_mutex);
    cnd_signal(&c11_condition);
    mtx_unlock(&c11_mutex);
    mtx_destroy(&c11_mutex);
    cnd_destroy(&c11_condition);
    DO(value);
    DO(thrd_sleep(&(struct timespec){0, 1000}, NULL));
    /* Stacks and thread control blocks are reused. */
    for (int i = 0; i < 30; i++) {
        pthread_create(&ids[0], NULL, (void *(*)(void *))(void *)c11, &value);
        pthread_join(ids[0], &result);
        value = (int)(long)result;
    }
    DO(value);
}

static sigjmp_buf jump;
static volatile sig_atomic_t handled;

static void on_signal(int signal) { handled = handled * 2 + signal; }

static void on_jump(int signal)
{
    handled += signal;
    siglongjmp(jump, signal);
}

static void on_info(int signal, siginfo_t *info, void *context)
{
    handled += signal + info->si_value.sival_int + (context == NULL);
}

static void signals(void)
{
    struct sigaction action = {0}, old;
    sigset_t set, pending;
    siginfo_t info;
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    signal(SIGUSR1, on_signal);
    DO(raise(SIGUSR1));
    DO(kill(getpid(), SIGUSR1));
    DO(handled);
    DO(sigaltstack(&stack, NULL));
    action.sa_sigaction = on_info;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    DO(sigaction(SIGUSR2, &action, &old));
    DO(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 1000}));
    DO(handled);
    signal(SIGALRM, on_jump);
    if (sigsetjmp(jump, 1) == 0) {
        struct itimerval timer = {{0, 0}, {0, 2000}};
        setitimer(ITIMER_REAL, &timer, NULL);
        for (;;)
            pause();
    }
    DO(handled);
    for (volatile int i = 0; i < 5; i++)
        if (setjmp(*(jmp_buf *)&jump) != i + 1)
            longjmp(*(jmp_buf *)&jump, i + 1);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGHUP);
    DO(sigprocmask(SIG_BLOCK, &set, NULL));
    raise(SIGUSR1);
    sigpending(&pending);
    DO(sigismember(&pending, SIGUSR1));
    DO(sigwaitinfo(&set, &info));
    raise(SIGHUP);
    int number;
    sigwait(&set, &number);
    DO(number);
    DO(sigtimedwait(&set, &info, &(struct timespec){0, 1000}));
    raise(SIGUSR1);
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    struct signalfd_siginfo from;
    DO(read(fd, &from, sizeof from) == sizeof from);
    close(fd);
    raise(SIGUSR1);
    sigfillset(&pending);
    sigdelset(&pending, SIGUSR1);
    DO(sigsuspend(&pending));
    DO(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    DO(handled);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec when = {{0, 0}, {0, 1}};
    DO(timer_create(CLOCK_MONOTONIC, &event, &timer));
    DO(timer_settime(timer, 0, &when, NULL));
    DO(timer_gettime(timer, &when));
    DO(timer_delete(timer));
    signal(SIGALRM, SIG_IGN);
    DO(alarm(100) + alarm(0) > 0);
    DO(siginterrupt(SIGUSR1, 1));
    DO(sigignore(SIGUSR2));
}

static ucontext_t contexts[3];

static void fiber(int a, int b)
{
    for (int i = 0; i < 3; i++) {
        printf("fiber %d %d\n", a, b * i);
        swapcontext(&contexts[a], &contexts[a == 1 ? 2 : 0]);
    }
}

static void fibers(void)
{
    static char stacks[2][65536];
    for (int i = 1; i < 3; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i - 1];
        contexts[i].uc_stack.ss_size = sizeof stacks[0];
        contexts[i].uc_link = &contexts[0];
        makecontext(&contexts[i], (void (*)(void))fiber, 2, i, i * 10);
    }
    for (int i = 0; i < 4; i++)
        swapcontext(&contexts[0], &contexts[1]);
    volatile int again = 0;
    getcontext(&contexts[0]);
    if (again++ < 3)
        setcontext(&contexts[0]);
    DO(again);
    void *frames[50];
    int depth = backtrace(frames, 50);
    char **names = backtrace_symbols(frames, depth);
    DO(depth > 2);
    DO(strstr(names[0], "drive_system") != NULL);
    free(names);
}

extern char **environ;

static void processes(const char *self)
{
    int status, ends[2];
    char text[100] = "";
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        free(malloc(1000));
        _exit((int)strlen("child"));
    }
    DO(waitpid(child, &status, 0) == child);
    DO(WEXITSTATUS(status));
    child = vfork();
    if (child == 0) {
        execl("/bin/echo", "echo", "after vfork", NULL);
        _exit(9);
    }
    DO(wait(&status) == child);
    DO(status);
    char words[][20] = {"sh", "-c", "exit 7"};
    char *arguments[] = {words[0], words[1], words[2], NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 5, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 5, 6);
    posix_spawn_file_actions_addclose(&actions, 5);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    DO(posix_spawnp(&child, "sh", &actions, &attributes, arguments, environ));
    struct rusage usage;
    DO(wait4(child, &status, 0, &usage) == child);
    DO(WEXITSTATUS(status));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    DO(posix_spawn(&child, self, NULL, NULL, (char *[]){words[0], NULL}, environ));
    siginfo_t info;
    DO(waitid(P_PID, (id_t)child, &info, WEXITED));
    DO(info.si_status);
    DO(system("echo from system; exit 3"));
    FILE *command = popen("echo from popen", "r");
    fgets(text, sizeof text, command);
    DO(pclose(command));
    printf("%s", text);
    DO(pipe(ends));
    DO(dup2(ends[1], 20));
    DO(dup3(ends[1], 21, O_CLOEXEC));
    child = fork();
    if (child == 0) {
        dup2(20, 1);
        execlp("echo", "echo", "through a pipe", NULL);
    }
    close(ends[1]);
    close(20);
    close(21);
    DO(wait3(&status, 0, NULL) == child);
    DO(read(ends[0], text, sizeof text));
    close(ends[0]);
    DO(getppid() > 0);
    DO(getpgid(0) == getpgrp());
    DO(getpriority(PRIO_PROCESS, 0));
    DO(nice(0));
    struct rlimit limit;
    DO(getrlimit(RLIMIT_CORE, &limit));
    DO(setrlimit(RLIMIT_CORE, &limit));
    DO(getrusage(RUSAGE_SELF, &usage));
    cpu_set_t set;
    DO(sched_getaffinity(0, sizeof set, &set));
    DO(sched_getscheduler(0));
}

static void sockets(void)
{
    int pair[2];
    char text[200];
    DO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    DO(send(pair[0], "abcdef", 6, 0));
    DO(recv(pair[1], text, 3, MSG_PEEK));
    DO(read(pair[1], text, 3));
    DO(recvfrom(pair[1], text, 10, 0, NULL, NULL));
    struct iovec parts[2] = {{(void *)"one", 3}, {(void *)"two", 3}}, into = {text, sizeof text};
    DO(writev(pair[0], parts, 2));
    DO(readv(pair[1], &into, 1));
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {{0}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &pair[1], sizeof(int));
    DO(sendmsg(pair[0], &message, 0));
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    DO(recvmsg(pair[1], &message, 0));
    close(*(int *)CMSG_DATA(&control.header));
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    socklen_t length = sizeof address;
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0), on = 1;
    DO(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    DO(bind(server, (struct sockaddr *)&address, sizeof address));
    DO(listen(server, 3));
    DO(connect(client, (struct sockaddr *)&address, sizeof address));
    int accepted = accept(server, NULL, NULL);
    DO(getsockname(server, (struct sockaddr *)&address, &length));
    DO(getpeername(client, (struct sockaddr *)&address, &length));
    DO(shutdown(client, SHUT_WR));
    DO(read(accepted, text, 1));
    struct pollfd polled = {.fd = accepted, .events = POLLIN};
    DO(poll(&polled, 1, 100));
    DO(ppoll(&polled, 1, NULL, NULL));
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(accepted, &readable);
    DO(select(accepted + 1, &readable, NULL, NULL, NULL));
    DO(pselect(accepted + 1, &readable, NULL, NULL, NULL, NULL));
    int epoll = epoll_create1(0), event = eventfd(3, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = 8}, got[4];
    DO(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted));
    DO(epoll_wait(epoll, got, 4, 100));
    DO(epoll_pwait(epoll, got, 4, 100, NULL));
    eventfd_t value;
    DO(eventfd_read(event, &value));
    DO(eventfd_write(event, 2));
    struct itimerspec when = {{0, 0}, {0, 1000}};
    DO(timerfd_settime(timer, 0, &when, NULL));
    DO(read(timer, &value, sizeof value));
    int watch = inotify_init1(0);
    DO(inotify_add_watch(watch, ".", IN_CREATE) > 0);
    int all[] = {pair[0], pair[1], server, client, accepted, epoll, event, timer, watch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

static void memory(void)
{
    char text[100] = "";
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map[page] = 1;
    DO(mprotect(map, page, PROT_READ));
    DO(mprotect(map, page, PROT_READ | PROT_WRITE));
    DO(madvise(map, page, MADV_NORMAL));
    map = mremap(map, 3 * page, 5 * page, MREMAP_MAYMOVE);
    DO(map[page]);
    unsigned char resident[5];
    DO(mincore(map, 5 * page, resident));
    DO(mlock(map, page));
    DO(munlock(map, page));
    DO(munmap(map, 5 * page));
    int fd = memfd_create("drive", 0), other = open("file", O_RDWR | O_CREAT, 0600);
    DO(write(fd, "content of it", 13));
    lseek(fd, 0, SEEK_SET);
    DO(sendfile(other, fd, NULL, 8));
    DO(flock(other, LOCK_EX));
    DO(msync(map, 0, MS_ASYNC));
    struct aiocb request = {.aio_fildes = other, .aio_buf = text, .aio_nbytes = 8};
    const struct aiocb *requests[] = {&request};
    DO(aio_read(&request));
    DO(aio_suspend(requests, 1, NULL));
    DO(aio_error(&request));
    DO(aio_return(&request));
    puts(text);
    close(fd);
    close(other);
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    void *attached = shmat(id, NULL, 0);
    DO(shmctl(id, IPC_RMID, NULL));
    DO(shmdt(attached));
    id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    DO(semop(id, &(struct sembuf){0, 1, 0}, 1));
    DO(semctl(id, 0, IPC_RMID));
    DO(getrandom(text, 10, 0));
    DO(getentropy(text, 10));
    struct utsname name;
    struct sysinfo info;
    struct termios terminal;
    DO(uname(&name));
    DO(sysinfo(&info));
    DO(tcgetattr(fd, &terminal));
    DO(isatty(0));
    DO(sysconf(_SC_NPROCESSORS_ONLN) > 0);
    DO(pathconf("/", _PC_NAME_MAX));
    DO(confstr(_CS_PATH, text, sizeof text));
    DO(getauxval(AT_PAGESZ));
    DO(gnu_get_libc_version()[0]);
    DO(nanosleep(&(struct timespec){0, 1000}, NULL));
    DO(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000}, NULL));
    DO(usleep(10));
    DO(clock_getres(CLOCK_REALTIME, NULL));
    DO(gethostname(text, sizeof text));
}

static int on_module(struct dl_phdr_info *info, size_t size, void *count)
{
    ++*(int *)count;
    return size == 0 || info->dlpi_phnum == 0;
}

static void loading(void)
{
    int modules = 0;
    Dl_info info;
    DO(dl_iterate_phdr(on_module, &modules));
    DO(modules > 2);
    for (int i = 0; i < 3; i++) {
        void *library = dlopen("libm.so.6", i == 1 ? RTLD_NOW | RTLD_GLOBAL : RTLD_LAZY);
        double (*power)(double, double) = (double (*)(double, double))dlsym(library, "pow");
        DO(power(2, 10 + i));
        DO(dladdr((void *)power, &info));
        DO(dlvsym(library, "pow", "GLIBC_2.29") != NULL);
        DO(dlsym(library, "no such thing") == NULL);
        DO(dlerror() != NULL);
        DO(dlclose(library));
    }
    DO(dlopen("no such library", RTLD_NOW) == NULL);
    DO(strlen(dlerror()) > 10);
    void *apart = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
    double (*root)(double) = (double (*)(double))dlsym(apart, "sqrt");
    DO(root(1764));
    DO(dlclose(apart));
}

static void at_end(void) { puts("at end"); }
static void on_end(int status, void *text) { printf("%s %d\n", (char *)text, status); }

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2)
        return 4;
    if (chdir(argv[1]))
        return 2;
    atexit(at_end);
    on_exit(on_end, (char *)"status");
    at_quick_exit(at_end);
    threads();
    signals();
    fibers();
    processes("/proc/self/exe");
    sockets();
    memory();
    loading();
    exit(8);
}
