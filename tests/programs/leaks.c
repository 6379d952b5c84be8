// Allocates memory, and frees everything except the blocks to leak. Forks a child that does the
// same, unless told to stay alone. Checks for leaks in between on request.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

__attribute__((noinline)) void *work(int i) {
    void *memory = malloc(16 + i);
    __asm__ volatile("" ::"r"(memory) : "memory");
    return memory;
}

// On a stack that is gone at the end: an address left on a stack would count as a reference.
static void *leak(void *count) {
    for (long i = 0; i < (long)count; i++) work(i);
    return 0;
}

static void child(void) {
    pid_t pid = fork();
    if (!pid) {
        for (int i = 0; i < 50; i++) free(work(i));
        exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    // Its own check found no leak.
    if (status) _exit(70);
}

// WHAT LEAKED: "leaks" or "clean"; LEAKED blocks are not freed. "check" checks in between and forks
// once more.
int main(int count, char **words) {
    int leaked = count > 2 ? atoi(words[2]) : 0;
    for (int i = 0; i < 100; i++) free(work(i));
    pthread_t thread;
    pthread_create(&thread, 0, leak, (void *)(long)leaked);
    pthread_join(thread, 0);
    if (count > 1 && !strcmp(words[1], "alone")) return 0;
    child();
    if (count > 1 && !strcmp(words[1], "check")) {
        int found = __lsan_do_recoverable_leak_check ? __lsan_do_recoverable_leak_check() : -1;
        printf("found %d\n", found);
        fflush(stdout);
        child();
    }
    return 0;
}
