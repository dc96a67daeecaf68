/* Memory calls, one for each run: `memory_calls CASE`. Prints the page faults that the host's kernel has counted for
   the program and its children, between the marks of the region of interest. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pagewalk.h"
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE = 4096, PAGES = 1000, BYTES = PAGES * PAGE, HUGE = 2 << 20 };
static volatile char sink;

static void writes(char *p, long pages) {
    for (long i = 0; i < pages; i++) ((volatile char *)p)[i * PAGE] = 1;
}
static void reads(char *p, long pages) {
    for (long i = 0; i < pages; i++) sink += ((volatile char *)p)[i * PAGE];
}
static char *fresh(long bytes, int flags) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}
/* Memory without huge pages on any host. */
static char *small(void) {
    char *p = fresh(BYTES, MAP_PRIVATE);
    madvise(p, BYTES, MADV_NOHUGEPAGE);
    return p;
}
/* Whole huge pages, aligned by the program. */
static char *huge(long count) {
    char *p = fresh((count + 1) * HUGE, MAP_PRIVATE);
    return (char *)(((unsigned long)p + HUGE - 1) & -(unsigned long)HUGE);
}
static char *of_file(int file, int flags) {
    return mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
}
static int memory_file(void) {
    int file = memfd_create("memory", 0);
    if (ftruncate(file, BYTES)) exit(9);
    return file;
}
static int disk_file(void) {
    static char page[PAGE];
    char name[] = "memory-calls-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    /* Page by page, so that the page cache holds small pages. */
    for (int i = 0; i < PAGES; i++)
        if (write(file, page, PAGE) != PAGE) exit(9);
    return file;
}
static void child_writes(char *p) {
    pid_t child = fork();
    if (!child) {
        writes(p, PAGES);
        _exit(0);
    }
    waitpid(child, 0, 0);
}
static long faults(void) {
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return own.ru_minflt + children.ru_minflt;
}

int main(int argc, char **argv) {
    const char *name = argv[1];
    char *p = 0, *q = 0;
    int file = 0;
    long before = 0;
#define CASE(text, prepare, measured) \
    if (!strcmp(name, text)) { \
        prepare; \
        before = faults(); \
        pagewalk_roi_begin(); \
        measured; \
        pagewalk_roi_end(); \
    }
    CASE("nothing", , )
    CASE("align", , for (int i = 0; i < 16; i++) {
        p = fresh(HUGE, MAP_PRIVATE);
        mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(p, HUGE, MADV_HUGEPAGE);
        writes(p, HUGE / PAGE);
    })
    CASE("align-other-length", , for (int i = 0; i < 4; i++) {
        p = fresh(HUGE + PAGE, MAP_PRIVATE);
        mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(p, HUGE, MADV_HUGEPAGE);
        writes(p, HUGE / PAGE);
    })
    CASE("align-hint", , p = mmap((void *)0x100000123000, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         madvise(p, HUGE, MADV_HUGEPAGE); writes(p, HUGE / PAGE))
    CASE("read", p = small(), reads(p, PAGES))
    CASE("read-write", p = small(), reads(p, PAGES); writes(p, PAGES))
    CASE("read-huge", p = huge(4); madvise(p, 4 * HUGE, MADV_HUGEPAGE), reads(p, 4 * HUGE / PAGE))
    CASE("read-write-huge", p = huge(4); madvise(p, 4 * HUGE, MADV_HUGEPAGE),
         reads(p, 4 * HUGE / PAGE); writes(p, 4 * HUGE / PAGE))
    CASE("file-read", p = of_file(disk_file(), MAP_PRIVATE), reads(p, PAGES))
    CASE("file-write", p = of_file(disk_file(), MAP_PRIVATE), writes(p, PAGES))
    CASE("file-read-write", p = of_file(disk_file(), MAP_SHARED), reads(p, PAGES); writes(p, PAGES))
    CASE("memory-file-read", file = memory_file(); writes(of_file(file, MAP_SHARED), PAGES); p = of_file(file, MAP_SHARED),
         reads(p, PAGES); writes(p, PAGES))
    CASE("shared", p = fresh(BYTES, MAP_SHARED), child_writes(p); writes(p, PAGES))
    CASE("shared-file", p = of_file(memory_file(), MAP_SHARED), child_writes(p); writes(p, PAGES))
    CASE("shared-segment", p = shmat(shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600), 0, 0), child_writes(p); writes(p, PAGES))
    CASE("shared-disk-file", p = of_file(disk_file(), MAP_SHARED), child_writes(p); writes(p, PAGES))
    CASE("shared-twice", file = memory_file(); p = of_file(file, MAP_SHARED); q = of_file(file, MAP_SHARED),
         writes(p, PAGES); writes(q, PAGES))
    CASE("disable-thp", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); p = huge(2); madvise(p, 2 * HUGE, MADV_HUGEPAGE),
         writes(p, 2 * HUGE / PAGE))
    CASE("collapse", p = huge(4); madvise(p, 4 * HUGE, MADV_NOHUGEPAGE); writes(p, 4 * HUGE / PAGE);
         madvise(p, 4 * HUGE, MADV_HUGEPAGE), madvise(p, 4 * HUGE, MADV_COLLAPSE); writes(p, 4 * HUGE / PAGE))
    CASE("no-huge-after", p = huge(4); madvise(p, 4 * HUGE, MADV_HUGEPAGE); writes(p, HUGE / PAGE);
         madvise(p, 4 * HUGE, MADV_NOHUGEPAGE), writes(p, 2 * HUGE / PAGE))
    CASE("free", p = small(), writes(p, PAGES); madvise(p, BYTES, MADV_FREE); writes(p, PAGES))
    CASE("remove", p = fresh(BYTES, MAP_SHARED); writes(p, PAGES), madvise(p, BYTES, MADV_REMOVE); reads(p, PAGES);
         if (sink) exit(8))
    CASE("punch", file = memory_file(); p = of_file(file, MAP_SHARED); writes(p, PAGES),
         if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES)) exit(9); writes(p, PAGES))
    CASE("truncate", file = memory_file(); p = of_file(file, MAP_SHARED); writes(p, PAGES),
         if (ftruncate(file, 0) || ftruncate(file, BYTES)) exit(9); writes(p, PAGES))
    CASE("dont-fork", p = small(); writes(p, PAGES); madvise(p, BYTES, MADV_DONTFORK),
         if (!fork()) _exit(0); wait(0); writes(p, PAGES))
    CASE("wipe-on-fork", p = small(); writes(p, PAGES); madvise(p, BYTES, MADV_WIPEONFORK),
         if (!fork()) { reads(p, PAGES); _exit(0); } wait(0); writes(p, PAGES))
    CASE("populate", , p = fresh(BYTES, MAP_PRIVATE | MAP_POPULATE); writes(p, PAGES))
    CASE("populate-read", p = small(), madvise(p, BYTES, MADV_POPULATE_READ); reads(p, PAGES))
    CASE("populate-write", p = small(), madvise(p, BYTES, MADV_POPULATE_WRITE); writes(p, PAGES))
    CASE("lock", p = small(), mlock(p, BYTES); writes(p, PAGES))
    CASE("lock-future", , if (mlockall(MCL_FUTURE)) exit(9); p = fresh(BYTES, MAP_PRIVATE); writes(p, PAGES))
    CASE("dont-unmap", p = small(); writes(p, PAGES),
         q = mremap(p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0); if (q == MAP_FAILED) exit(9);
         writes(q, PAGES); writes(p, PAGES))
    CASE("unknown", p = small(); writes(p, PAGES), for (int i = 0; i < 3; i++) madvise(p, BYTES, 12 /* MADV_MERGEABLE */))
    if (!before) return 7;
    printf("%ld\n", faults() - before);
    return 0;
}
