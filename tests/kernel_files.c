// Prints what files of the kernel say about a madvised area and about the machine.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t HUGE = 2 << 20;

// A whole file, read as the JVM does.
static void show(const char *name, const char *path) {
    char line[4096];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) {
        printf("%s=missing\n", name);
        return;
    }
    line[strcspn(line, "\n")] = 0;
    printf("%s=%s\n", name, line);
    fclose(file);
}

// A field of a file, in kB.
static long field(const char *path, const char *name) {
    char line[4096];
    FILE *file = fopen(path, "r");
    long found = -1;
    while (file && found < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            found = strtol(line + strlen(name) + 1, NULL, 10);
    if (file)
        fclose(file);
    return found;
}

// Fields of the area at `at` in smaps, in kB.
static void fields(const char *label, uintptr_t at) {
    static const char *names[] = {"Size", "Rss", "Pss", "Private_Dirty", "Shared_Dirty",
                                  "Anonymous", "AnonHugePages", "THPeligible"};
    char line[4096];
    FILE *file = fopen("/proc/self/smaps", "r");
    int inside = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *end;
        unsigned long from = strtoul(line, &end, 16);
        if (*end == '-')
            inside = from <= at && at < strtoul(end + 1, NULL, 16);
        for (size_t i = 0; inside && i < sizeof names / sizeof *names; i++)
            if (!strncmp(line, names[i], strlen(names[i])) && line[strlen(names[i])] == ':')
                printf("%s.%s=%ld\n", label, names[i], strtol(line + strlen(names[i]) + 1, NULL, 10));
    }
    fflush(stdout);
}

// Entries of the pages from `at` on.
static uint64_t *entries(int file, void *at, size_t pages) {
    uint64_t *all = calloc(pages, 8);
    if (pread(file, all, pages * 8, (uintptr_t)at / 4096 * 8) != (ssize_t)(pages * 8))
        all[0] = 0;
    return all;
}

// An argument makes it write to a file of the kernel, as nobody should natively.
int main(int argc, char **argv) {
    show("enabled", "/sys/kernel/mm/transparent_hugepage/enabled");
    show("shmem_enabled", "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    show("hpage_pmd_size", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    show("pages_to_scan", "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan");
    show("size_64kb", "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled");
    show("pool", "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    printf("MemTotal=%ld\n", field("/proc/meminfo", "MemTotal"));
    printf("Hugepagesize=%ld\n", field("/proc/meminfo", "Hugepagesize"));

    // jemalloc reads with a bare open from a directory that it may have changed to.
    char text[64] = "";
    if (chdir("/sys/kernel/mm/transparent_hugepage") == 0) {
        int file = open("enabled", O_RDONLY);
        if (read(file, text, sizeof text - 1) > 0)
            text[strcspn(text, "\n")] = 0;
        close(file);
    }
    printf("relative=%s\n", text);

    // Eight huge regions with advice, of which half are touched; then 100 small pages without.
    char *area = mmap(NULL, 8 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, 8 * HUGE, MADV_HUGEPAGE);
    int statm = open("/proc/self/statm", O_RDONLY);
    long size, before = 0, after = 0;
    if (read(statm, text, sizeof text - 1) > 0)
        sscanf(text, "%ld %ld", &size, &before);
    for (int i = 0; i < 4; i++)
        area[i * HUGE + 12345] = 1;
    if (pread(statm, text, sizeof text - 1, 0) > 0)
        sscanf(text, "%ld %ld", &size, &after);
    printf("statm=%ld\nrss=%ld\n", after - before, after * 4);
    printf("VmRSS=%ld\n", field("/proc/self/status", "VmRSS"));
    char *small = mmap(NULL, 1000 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(small, 1000 * 4096, MADV_NOHUGEPAGE);
    for (int i = 0; i < 100; i++)
        small[i * 4096] = 1;
    char zero = small[500 * 4096];
    fields("huge", (uintptr_t)area);
    fields("small", (uintptr_t)small);
    printf("rollup.AnonHugePages=%ld\n", field("/proc/self/smaps_rollup", "AnonHugePages"));

    int map = open("/proc/self/pagemap", O_RDONLY);
    int present = 0, contiguous = 0;
    uint64_t *all = entries(map, area, 8 * HUGE / 4096), frame = (1ull << 55) - 1;
    for (size_t i = 0; i < 8 * HUGE / 4096; i++) {
        present += all[i] >> 63;
        contiguous += i < 512 && (all[i] & frame) == (all[0] & frame) + i;
    }
    printf("pagemap.huge=%d\npagemap.contiguous=%d\n", present, contiguous);
    present = 0;
    all = entries(map, small, 1000);
    for (int i = 0; i < 1000; i++)
        present += all[i] >> 63;
    // The zero page is there, too.
    printf("pagemap.small=%d\n", present + zero);
    printf("pagemap.exclusive=%d\n", (int)(all[0] >> 56 & 1));

    // A child shares the pages; it sees its own files.
    fflush(stdout);
    if (fork() == 0) {
        for (int i = 0; i < 10; i++)
            small[i * 4096] = 2;
        fields("child", (uintptr_t)small);
        _exit(0);
    }
    wait(NULL);
    if (argc > 1) {
        int file = open(argv[1], O_WRONLY);
        printf("written=%d\n", file >= 0 && write(file, "1\n", 2) == 2);
    }
    return 0;
}
