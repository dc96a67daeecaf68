/* What QEMU's user mode does not do as Linux does: each word of the command line is a case,
 * and a line says how it went ("yes": as Linux). */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *outcome(long result) { return result < 0 ? strerror(errno) : "yes"; }

static struct timespec in(long seconds) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += seconds;
    return t;
}

static void *sleeper(void *nothing) {
    for (;;) pause();
    return nothing;
}

static const char *pthread_cancel_(void) {
    pthread_t thread;
    void *result = NULL;
    struct timespec until = in(5);
    pthread_create(&thread, NULL, sleeper, NULL);
    int error = pthread_cancel(thread);
    if (!error) error = pthread_timedjoin_np(thread, &result, &until);
    return error ? strerror(error) : result == PTHREAD_CANCELED ? "yes" : "another result";
}

static const char *ptrace_(void) { return outcome(ptrace(PTRACE_TRACEME, 0, 0, 0)); }

static const char *map_fixed_noreplace(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *p = mmap(NULL, 8192, PROT_READ, flags, -1, 0);
    char *q = mmap(p, 4096, PROT_READ, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (q == MAP_FAILED) return errno == EEXIST ? "yes" : strerror(errno);
    return q == p ? "replaced" : "elsewhere";
}

static const char *rlimit_as(void) {
    struct rlimit limit = {1UL << 28, 1UL << 28};
    setrlimit(RLIMIT_AS, &limit);
    void *p = mmap(NULL, 1UL << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? "yes" : "not kept";
}

static const char *unshare_(void) { return outcome(unshare(CLONE_NEWUSER)); }

static const char *io_uring(void) {
    char parameters[256] = {0};
    return outcome(syscall(SYS_io_uring_setup, 4, parameters));
}

static const char *clone3(void) {
    return syscall(SYS_clone3, 0, 0) < 0 && errno == EINVAL ? "yes" : outcome(-1);
}

static const char *userfaultfd(void) { return outcome(syscall(SYS_userfaultfd, 1)); }

static const char *process_vm_readv_(void) {
    char from[8] = "abc", to[8];
    struct { void *at; size_t bytes; } local = {to, 8}, remote = {from, 8};
    return outcome(syscall(SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 0));
}

static const char *perf_event_open(void) {
    return syscall(SYS_perf_event_open, 0, 0, 0, 0, 0) < 0 && errno != ENOSYS ? "yes" : outcome(-1);
}

static const char *vfork_(void) {
    volatile int seen = 0;
    pid_t child = vfork();
    if (child == 0) {
        seen = 1;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return seen ? "yes" : "as fork";
}

static const char *robust_mutex(void) {
    pthread_mutexattr_t how;
    pthread_mutex_t *mutex =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(mutex, &how);
    if (fork() == 0) {
        pthread_mutex_lock(mutex);
        _exit(0);
    }
    wait(NULL);
    struct timespec until = in(1);
    int error = pthread_mutex_timedlock(mutex, &until);
    return error == EOWNERDEAD ? "yes" : strerror(error);
}

static const char *self_modifying_code(void) {
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, "\xb8\x01\0\0\0\xc3", 6); /* mov $1, %eax; ret */
    int first = ((int (*)(void))code)();
    code[1] = 2;
    return first == 1 && ((int (*)(void))code)() == 2 ? "yes" : "old code";
}

static const struct {
    const char *name;
    const char *(*run)(void);
} cases[] = {
    {"pthread_cancel", pthread_cancel_},
    {"ptrace", ptrace_},
    {"map_fixed_noreplace", map_fixed_noreplace},
    {"rlimit_as", rlimit_as},
    {"unshare", unshare_},
    {"io_uring", io_uring},
    {"clone3", clone3},
    {"userfaultfd", userfaultfd},
    {"process_vm_readv", process_vm_readv_},
    {"perf_event_open", perf_event_open},
    {"vfork", vfork_},
    {"robust_mutex", robust_mutex},
    {"self_modifying_code", self_modifying_code},
};

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
            if (!strcmp(argv[i], cases[n].name)) {
                /* In a process of its own: it may change that for good. */
                fflush(stdout);
                if (fork() == 0) {
                    printf("%s: %s\n", cases[n].name, cases[n].run());
                    fflush(stdout);
                    _exit(0);
                }
                wait(NULL);
            }
    return 0;
}
