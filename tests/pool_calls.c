/* Calls on pools of huge pages, calls of NUMA, and advice, one case for each run: `pool_calls CASE`. Prints the results
   that the program sees. The cases that are measured mark the region of interest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pagewalk.h"

#define MB (1L << 20)
#define HUGE (2 * MB)
#define HUGE_2MB (21 << 26)
#define HUGE_1GB (30 << 26)
#define HUGE_16MB (24 << 26)
enum { PAGE = 4096, PAGES = 1000, BYTES = PAGES * PAGE };
static volatile char sink;

static void show(const char *what, long result) {
    printf("= %s %ld\n", what, result < 0 ? (long)-errno : result);
}
static char *pool(long bytes, int flags) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | flags, -1, 0);
}
/* Shows if a mapping has been made, and its alignment. */
static char *shown(const char *what, char *p) {
    if (p == MAP_FAILED) {
        show(what, -1);
        return 0;
    }
    show(what, __builtin_ctzl((long)p) >= 21 ? 21 : 0);
    return p;
}
static void writes(char *p, long bytes) {
    for (long i = 0; i < bytes; i += PAGE) ((volatile char *)p)[i] = 1;
}
static void reads(char *p, long bytes) {
    for (long i = 0; i < bytes; i += PAGE) sink += ((volatile char *)p)[i];
}
static char *small(void) {
    char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, BYTES, MADV_NOHUGEPAGE);
    return p;
}
static char *disk_file(void) {
    static char page[PAGE];
    char name[] = "pool-calls-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    for (int i = 0; i < PAGES; i++)
        if (write(file, page, PAGE) != PAGE) exit(9);
    return mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
}

/* With a pool of 4 pages of 2 MB. */
static void errors(void) {
    shown("too many", pool(5 * HUGE, 0));
    char *all = shown("all", pool(4 * HUGE, HUGE_2MB));
    shown("none left", pool(HUGE, 0));
    shown("unreserved", pool(HUGE, MAP_NORESERVE));
    show("half", munmap(all, MB));
    show("from the middle", munmap(all + MB, HUGE));
    show("one", munmap(all, HUGE));
    shown("one again", pool(HUGE, 0));
    show("protect half", mprotect(all + HUGE, MB, PROT_READ));
    show("free", madvise(all + HUGE, HUGE, MADV_FREE));
    show("grow", mremap(all + HUGE, 3 * HUGE, 4 * HUGE, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    show("rest", munmap(all + HUGE, 3 * HUGE));
    /* The length is rounded up. */
    char *rounded = shown("rounded", pool(HUGE + PAGE, 0));
    rounded[2 * HUGE - 1] = 1;
    shown("no more", pool(2 * HUGE, 0));
    show("not whole", munmap(rounded, HUGE + PAGE));
    show("whole", munmap(rounded, 2 * HUGE));
    shown("no size", pool(16 * MB, HUGE_16MB));
    shown("no gigabyte", pool(1L << 30, HUGE_1GB));
    char *hint = (char *)(1L << 45) + PAGE;
    shown("unaligned", mmap(hint, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0));
}

static void files(void) {
    int file = memfd_create("pool", MFD_HUGETLB | HUGE_2MB);
    show("file", file >= 0 ? 0 : -1);
    /* A writable mapping makes the file longer. */
    char *p = shown("mapped", mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    char *q = shown("again", mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    shown("reserved twice", pool(3 * HUGE, 0));
    p[HUGE] = 42;
    show("same", q[HUGE]);
    shown("offset", mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, PAGE));
    munmap(p, 2 * HUGE);
    munmap(q, 2 * HUGE);
    close(file);
    show("size", memfd_create("pool", MFD_HUGETLB | HUGE_16MB));
    int id = shmget(IPC_PRIVATE, 3 * HUGE, IPC_CREAT | SHM_HUGETLB | 0600);
    show("segment", id >= 0 ? 0 : -1);
    shown("reserved", pool(2 * HUGE, 0));
    char *s = shown("attached", shmat(id, 0, 0));
    s[3 * HUGE - 1] = 1;
    shmdt(s);
    show("removed", shmctl(id, IPC_RMID, 0));
    shown("free again", pool(4 * HUGE, 0));
}

static void numa(void) {
    enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL };
    unsigned long here = 1, there = 2, mask = 99;
    int mode = 99, status[4] = {99, 99, 99, 99}, nodes[4] = {0, 0, 0, 0};
    unsigned cpu, node = 99;
    char *p = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p[0] = p[PAGE] = 1;
    show("bind", syscall(SYS_mbind, p, 4 * PAGE, BIND, &here, 64, 0));
    show("bind there", syscall(SYS_mbind, p, 4 * PAGE, BIND, &there, 64, 0));
    show("bind nothing", syscall(SYS_mbind, 4096, 4 * PAGE, BIND, &here, 64, 0));
    show("bind unaligned", syscall(SYS_mbind, p + 1, PAGE, BIND, &here, 64, 0));
    show("interleave", syscall(SYS_set_mempolicy, INTERLEAVE, &here, 64));
    show("get", syscall(SYS_get_mempolicy, &mode, &mask, 64, 0, 0));
    show("mode", mode);
    show("mask", mask);
    show("get of area", syscall(SYS_get_mempolicy, &mode, &mask, 64, p, 2));
    show("mode", mode);
    show("node of page", syscall(SYS_get_mempolicy, &mode, 0, 0, p, 3));
    show("node", mode);
    show("allowed", syscall(SYS_get_mempolicy, 0, &mask, 64, 0, 4));
    show("mask", mask);
    show("default", syscall(SYS_set_mempolicy, DEFAULT, 0, 0));
    show("wrong mode", syscall(SYS_set_mempolicy, 77, &here, 64));
    void *pages[4] = {p, p + PAGE, p + 2 * PAGE, (void *)4096};
    show("where", syscall(SYS_move_pages, 0, 4L, pages, 0, status, 0));
    for (int i = 0; i < 4; i++) show("status", status[i] < 0 ? (errno = -status[i], -1) : status[i]);
    show("move", syscall(SYS_move_pages, getpid(), 2L, pages, nodes, status, 2));
    nodes[1] = 1;
    show("move away", syscall(SYS_move_pages, 0, 2L, pages, nodes, status, 2));
    show("migrate", syscall(SYS_migrate_pages, 0, 64, &here, &here));
    show("migrate away", syscall(SYS_migrate_pages, 0, 64, &here, &there));
    show("cpu", syscall(SYS_getcpu, &cpu, &node, 0));
    show("node", node);
    show("thp off", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    show("thp is off", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    show("thp on", prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    show("thp is on", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    /* A call after a replaced result has its own. */
    show("pid", getpid() > 0);
    fflush(stdout);
    if (!fork()) {
        show("child's", syscall(SYS_get_mempolicy, &mode, 0, 0, p, 2));
        show("mode", mode);
        fflush(stdout);
        _exit(0);
    }
    wait(0);
}

static void advice(void) {
    char *p = small();
    writes(p, BYTES);
    struct iovec ranges[2] = {{p, 10 * PAGE}, {p + 20 * PAGE, 5 * PAGE}};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    show("cold", madvise(p, BYTES, MADV_COLD));
    show("page out", madvise(p, BYTES, MADV_PAGEOUT));
    show("kept", p[PAGE]);
    show("several", syscall(SYS_process_madvise, self, ranges, 2L, MADV_COLD, 0));
    show("flags", syscall(SYS_process_madvise, self, ranges, 2L, MADV_COLD, 1));
    ranges[0].iov_base = p + 1;
    show("unaligned", syscall(SYS_process_madvise, self, ranges, 2L, MADV_COLD, 0));
}

static void itself(char *p) {
    struct iovec all = {p, BYTES};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    show("advised", syscall(SYS_process_madvise, self, &all, 1L, MADV_DONTNEED, 0));
    reads(p, BYTES);
    show("zero", sink);
}

int main(int argc, char **argv) {
    const char *name = argv[1];
    char *p = 0;
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    fflush(stdout);
#define CASE(text, prepare, measured) \
    if (!strcmp(name, text)) { \
        prepare; \
        pagewalk_roi_begin(); \
        measured; \
        fflush(stdout); \
        pagewalk_roi_end(); \
    }
    CASE("errors", , errors())
    CASE("files", , files())
    CASE("numa", , numa())
    CASE("advice", , advice())
    CASE("pool", p = pool(4 * HUGE, 0), writes(p, 4 * HUGE))
    CASE("pool-read-write", p = pool(4 * HUGE, 0), reads(p, 4 * HUGE); writes(p, 4 * HUGE))
    CASE("pool-populate", , p = pool(4 * HUGE, MAP_POPULATE); writes(p, 4 * HUGE))
    CASE("pool-again", p = pool(4 * HUGE, 0); writes(p, 4 * HUGE); munmap(p, 4 * HUGE),
         p = pool(4 * HUGE, 0); writes(p, 4 * HUGE))
    CASE("gigabyte", p = pool(1L << 30, HUGE_1GB), writes(p, 4 * MB))
    CASE("segment", p = shmat(shmget(IPC_PRIVATE, 4 * HUGE, IPC_CREAT | SHM_HUGETLB | 0600), 0, 0), writes(p, 4 * HUGE))
    CASE("memory-file", p = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("pool", MFD_HUGETLB), 0),
         writes(p, 4 * HUGE))
    CASE("unreserved", p = pool(5 * HUGE, MAP_NORESERVE), writes(p, 5 * HUGE))
    CASE("free-written", p = small(); writes(p, BYTES), madvise(p, BYTES, MADV_FREE); writes(p, BYTES))
    CASE("file-page-out", p = disk_file(); reads(p, BYTES), madvise(p, BYTES, MADV_PAGEOUT); reads(p, BYTES))
    CASE("itself", p = small(); writes(p, BYTES), itself(p))
    return 0;
}
