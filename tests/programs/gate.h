/* For programs whose threads are at a chosen instruction while ipath attaches.
 *
 * A gate is a page that has not been touched yet: a thread that reads it sleeps, in the reading
 * instruction itself, until the gate is opened. That can be a string instruction that has completed
 * part of its work. */
#ifndef GATE_H
#define GATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GATE_PAGE 4096
/* Bytes to read before the gate's page, so that a string instruction is under way when it reaches
 * it. */
#define GATE_BEFORE 64

struct gate {
    char *page;
    int fd;
};

static __attribute__((unused)) void gate_fail(const char *what)
{
    perror(what);
    exit(2);
}

static __attribute__((unused)) int gate_descriptor(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
        gate_fail("userfaultfd");
    return fd;
}

static __attribute__((unused)) void gate_cover(int fd, char *start, size_t len)
{
    struct uffdio_register wanted = {
        .range = {(uintptr_t)start, len},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    if (ioctl(fd, UFFDIO_REGISTER, &wanted) < 0)
        gate_fail("UFFDIO_REGISTER");
}

/* A closed gate, with a readable page before it. */
static __attribute__((unused)) struct gate gate_make(void)
{
    char *pages = mmap(NULL, 2 * GATE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
    if (pages == MAP_FAILED)
        gate_fail("mmap");
    memset(pages, 1, GATE_PAGE);
    struct gate gate = {pages + GATE_PAGE, gate_descriptor()};
    gate_cover(gate.fd, gate.page, GATE_PAGE);
    return gate;
}

/* Waits until a thread has reached the gate. */
static __attribute__((unused)) void gate_await(const struct gate *gate)
{
    struct pollfd fd = {gate->fd, POLLIN, 0};
    struct uffd_msg message;
    do
        poll(&fd, 1, -1);
    while (read(gate->fd, &message, sizeof message) != sizeof message);
}

/* Opens it: its page is zeroes from now on. */
static __attribute__((unused)) void gate_open(const struct gate *gate)
{
    struct uffdio_zeropage zero = {.range = {(uintptr_t)gate->page, GATE_PAGE}};
    if (ioctl(gate->fd, UFFDIO_ZEROPAGE, &zero) < 0)
        gate_fail("UFFDIO_ZEROPAGE");
}

/* Closes it again, and forgets the threads that have reached it. */
static __attribute__((unused)) void gate_close(const struct gate *gate)
{
    struct uffd_msg message;
    while (read(gate->fd, &message, sizeof message) == sizeof message)
        ;
    if (madvise(gate->page, GATE_PAGE, MADV_DONTNEED) < 0)
        gate_fail("madvise");
}

/* Prints a line for the test. */
static __attribute__((unused)) void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

/* Blocks the test's signals until they are awaited. To be called before any thread is created. */
static __attribute__((unused)) void await_nothing_yet(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Waits for the test's SIGUSR1. */
static __attribute__((unused)) void await_test(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    int got;
    while (sigwait(&set, &got) != 0)
        ;
}

#endif
