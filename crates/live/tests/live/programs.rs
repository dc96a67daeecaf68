//! C programs that the tests run.

/// Random updates of a table of 1 MB, in a region of interest.
pub const GUPS: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "pagewalk.h"
int main(int c, char **v) {
    uint64_t n = c > 1 ? atoll(v[1]) : 1000, x = 88172645463325252ull;
    volatile uint64_t *t = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pagewalk_roi_begin();
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        t[x & ((1 << 17) - 1)] ^= x;
    }
    pagewalk_roi_end();
    return 0;
}"#;

/// Works for a while, then reads an unmapped address.
pub const CRASH: &str = r#"
int main(void) {
    volatile long sum = 0;
    for (int i = 0; i < 50000; i++) sum += i;
    return *(volatile int *)16;
}"#;

/// Works for a while, then kills itself.
pub const KILL: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
int main(void) {
    volatile long sum = 0;
    for (int i = 0; i < 50000; i++) sum += i;
    kill(getpid(), SIGKILL);
    return 0;
}"#;

/// Looks up records by key. Arguments: keys, rounds, threads. Queries the shortcut first, and searches the table on a
/// miss. Prints the sum of the values, then the counts of hits, misses and insertions.
pub const QUERIES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "pagewalk.h"
struct record { unsigned long key, value; };
struct counts { unsigned long sum, hits, misses, inserted; };
static struct record *table;
static unsigned long keys, rounds;
static struct record *search(unsigned long key) {
    struct record *r = table;
    while (r->key != key) r++;
    return r;
}
static void *work(void *number) {
    struct counts *mine = calloc(1, sizeof *mine);
    unsigned long first = (unsigned long)number * keys;
    for (unsigned long i = 0; i < rounds * keys; i++) {
        unsigned long key = first + i % keys;
        struct record *r = pagewalk_load_va(key);
        if (r && r->key == key) {
            mine->hits++;
        } else {
            mine->misses++;
            r = search(key);
            mine->inserted += pagewalk_insert_va(key, r);
        }
        mine->sum += r->value;
    }
    return mine;
}
int main(int c, char **v) {
    if (c < 4) return 2;
    keys = atol(v[1]), rounds = atol(v[2]);
    unsigned long threads = atol(v[3]);
    pthread_t t[64];
    struct counts all = {0};
    table = malloc(threads * keys * sizeof *table);
    for (unsigned long k = 0; k < threads * keys; k++)
        table[k] = (struct record){k, k * k};
    for (unsigned long i = 1; i < threads; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (unsigned long i = 0; i < threads; i++) {
        struct counts *one;
        if (i == 0) one = work(0); else pthread_join(t[i], (void **)&one);
        all.sum += one->sum, all.hits += one->hits;
        all.misses += one->misses, all.inserted += one->inserted;
    }
    printf("%lu\n%lu %lu %lu\n", all.sum, all.hits, all.misses, all.inserted);
    return 0;
}"#;

/// A process, its fork and a new image of it query the same integer, and count how often they get their own insertion
/// back.
pub const QUERYING_CHILDREN: &str = r#"
#include <sys/wait.h>
#include <unistd.h>
#include "pagewalk.h"
static int insertions_found(char *here) {
    if (pagewalk_load_va(7) == here) return 1;
    pagewalk_insert_va(7, here);
    return pagewalk_load_va(7) == here ? 2 : 0;
}
static char here;
int main(int c, char **v) {
    if (c > 1) return 10 * insertions_found(&here);
    int sum = insertions_found(&here), status;
    if (fork() == 0) _exit(3 * insertions_found(&here));
    wait(&status);
    sum += WEXITSTATUS(status);
    if (fork() == 0) execl(v[0], v[0], "again", (char *)0);
    wait(&status);
    return sum + WEXITSTATUS(status) + 100 * (insertions_found(&here) == 1);
}"#;

/// Queries once; with result 1, it queries again and again.
pub const QUERY_ONCE: &str = r#"
#include "pagewalk.h"
int main(void) {
    while (pagewalk_load_va(1) == (void *)1) continue;
    return 3;
}"#;

/// Threads keep records in pages of their own, insert their addresses, and erase them before they unmap the pages. Then
/// the table is emptied, freed and inherited. Prints the calls that succeeded, wrong addresses, and whether there were
/// hits; then the state after each change.
pub const TABLES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pagewalk.h"
enum { KEYS = 48 };
struct record { unsigned long key; };
struct counts { unsigned long wrong, hits, made, freed; };
static unsigned long rounds;
/* A set and a tag of its own for each key, in 1024 rows of 4 ways. */
static uint64_t integer(unsigned long key) { return key << 12 | key; }
static void *work(void *number) {
    struct counts *mine = calloc(1, sizeof *mine);
    struct record *records[KEYS] = {0};
    uint64_t random = 88172645463325252u + (unsigned long)number;
    for (unsigned long i = 0; i < rounds; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        unsigned k = random >> 8 & 0xffff;
        unsigned long key = (unsigned long)number * KEYS + (k %= KEYS);
        if (random % 8 == 0 && records[k]) {
            pagewalk_erase_va(integer(key));
            munmap(records[k], 4096);
            records[k] = 0;
            mine->freed++;
            continue;
        }
        struct record *r = pagewalk_load_va(integer(key));
        if (r) {
            /* One that was not erased before it was unmapped would be read here. */
            mine->hits++;
            mine->wrong += r->key != key || r != records[k];
            continue;
        }
        if (!records[k]) {
            records[k] = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            records[k]->key = key;
            mine->made++;
        }
        pagewalk_insert_va(integer(key), records[k]);
    }
    for (unsigned k = 0; k < KEYS; k++)
        if (!records[k]) mine->wrong += !!pagewalk_load_va(integer((unsigned long)number * KEYS + k));
    return mine;
}
static int there(void) {
    int found = 0;
    for (unsigned long key = 0; key < 5 * KEYS; key++) found += !!pagewalk_load_va(integer(key));
    return found;
}
static char here[16];
static int one(void) {
    pagewalk_insert_va(5, here);
    return pagewalk_load_va(5) == here;
}
int main(int c, char **v) {
    if (c < 3) {
        printf("exec %d", !!pagewalk_load_va(5));
        printf(" alloc %d", pagewalk_stlt_alloc(256));
        printf(" %d\n", one());
        return 0;
    }
    unsigned long threads = atol(v[1]);
    rounds = atol(v[2]);
    int first = pagewalk_stlt_alloc(100), second = pagewalk_stlt_alloc(1024);
    printf("alloc %d %d %d\n", first, second, pagewalk_stlt_alloc(1024));
    pthread_t t[8];
    struct counts all = {0};
    for (unsigned long i = 1; i < threads; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (unsigned long i = 0; i < threads; i++) {
        struct counts *one;
        if (i == 0) one = work(0); else pthread_join(t[i], (void **)&one);
        all.wrong += one->wrong, all.hits += one->hits;
        all.made += one->made, all.freed += one->freed;
    }
    printf("wrong %lu hits %lu made %lu freed %lu\n", all.wrong, all.hits, all.made, all.freed);
    printf("there %d", there() > 0);
    int resized = pagewalk_stlt_resize(0);
    printf(" resize %d there %d", resized, there());
    resized = pagewalk_stlt_resize(4096);
    int again = one();
    printf(" resize %d again %d refused %d there %d\n", resized, again, pagewalk_stlt_resize(300),
           pagewalk_load_va(5) == here);
    fflush(stdout);
    if (fork() == 0) {
        int found = pagewalk_load_va(5) == here;
        printf("child %d %d\n", found, one());
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    printf("parent %d", pagewalk_load_va(5) == here);
    int freed = pagewalk_stlt_free();
    printf(" free %d %d there %d", freed, pagewalk_stlt_free(), !!pagewalk_load_va(5));
    printf(" insert %d", pagewalk_insert_va(5, here));
    printf(" alloc %d", pagewalk_stlt_alloc(0));
    printf(" %d\n", one());
    fflush(stdout);
    if (fork() == 0) execl(v[0], v[0], (char *)0);
    wait(0);
    return 0;
}"#;

/// Two threads that take turns through a futex.
pub const PING_PONG: &str = r#"
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int turn, count, rounds;
static void play(int me) {
    for (int i = 0; i < rounds; i++) {
        int now;
        while ((now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) != me)
            syscall(SYS_futex, &turn, FUTEX_WAIT, now, 0, 0, 0);
        count++;
        __atomic_store_n(&turn, !me, __ATOMIC_RELEASE);
        syscall(SYS_futex, &turn, FUTEX_WAKE, 1, 0, 0, 0);
    }
}
static void *other(void *x) { play(1); return x; }
int main(int c, char **v) {
    rounds = c > 1 ? atoi(v[1]) : 100;
    pthread_t t;
    pthread_create(&t, 0, other, 0);
    play(0);
    pthread_join(t, 0);
    printf("%d\n", count);
    return 0;
}"#;

/// Address of the areas of [`UNMAP`].
pub const AREAS: u64 = 0x10_0000_0000;

/// One thread maps an area; another writes all of it and signals that; the first unmaps it.
pub const UNMAP: &str = r#"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
static char *volatile area;
static volatile int stop;
static void *writer(void *x) {
    while (!stop) {
        char *a = __atomic_load_n(&area, __ATOMIC_ACQUIRE);
        if (!a) { sched_yield(); continue; }
        for (int i = 0; i < 16 * 4096; i += 128) a[i]++;
        __atomic_store_n(&area, (char *)0, __ATOMIC_RELEASE);
    }
    return x;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, writer, 0);
    for (int i = 0; i < 200; i++) {
        char *at = (char *)(0x1000000000ul + (i % 3) * 0x100000);
        char *a = mmap(at, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        __atomic_store_n(&area, a, __ATOMIC_RELEASE);
        while (__atomic_load_n(&area, __ATOMIC_ACQUIRE)) sched_yield();
        munmap(a, 16 * 4096);
    }
    stop = 1;
    pthread_join(t, 0);
    return 0;
}"#;

/// One thread maps areas; another creates threads that use the latest one.
pub const STARTS: &str = r#"
#include <pthread.h>
#include <sys/mman.h>
static char *volatile area;
static volatile int stop;
static void *mapper(void *x) {
    for (unsigned long i = 0; !stop; i++) {
        char *a = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        __atomic_store_n(&area, a, __ATOMIC_RELEASE);
    }
    return x;
}
static void *user(void *x) {
    char *a = __atomic_load_n(&area, __ATOMIC_ACQUIRE);
    if (a) a[0] = a[4096] = 1;
    return x;
}
int main(void) {
    pthread_t m, t;
    pthread_create(&m, 0, mapper, 0);
    for (int i = 0; i < 200; i++) {
        pthread_create(&t, 0, user, 0);
        pthread_join(t, 0);
    }
    stop = 1;
    pthread_join(m, 0);
    return 0;
}"#;

/// Two threads extend the heap by pages and write them.
pub const HEAP: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *x) {
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&lock);
        char *p = sbrk(8192);
        pthread_mutex_unlock(&lock);
        for (int j = 0; j < 8192; j += 512) p[j] = 1;
    }
    return x;
}
int main(void) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    return 0;
}"#;

/// One mapping of each kind.
pub const MAPS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int c, char **v) {
    (void)c;
    char *a = mmap(0, 0x3000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a = mremap(a, 0x3000, 0x40000, MREMAP_MAYMOVE);
    a[0x3f000] = 1;
    mprotect(a, 0x1000, PROT_READ);
    char *h = mmap(0, 0x200000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(h, 0x200000, MADV_HUGEPAGE);
    char *s = mmap(0, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s[0] = 1;
    int f = open(v[0], O_RDONLY);
    if (f < 0 || mmap(0, 0x1000, PROT_READ, MAP_PRIVATE, f, 0) == MAP_FAILED) return 2;
    char *b = sbrk(0x100000);
    b[0xfff00] = 1;
    return munmap(a, 0x40000);
}"#;

/// Computes, while a child stops the process again and again.
pub const STOPPED: &str = r#"
#include <signal.h>
#include <unistd.h>
int main(void) {
    pid_t me = getpid(), child = fork();
    if (child == 0) {
        for (int i = 0; i < 200 && getppid() == me; i++) {
            kill(me, SIGSTOP);
            usleep(10000);
            kill(me, SIGCONT);
            usleep(1000);
        }
        _exit(0);
    }
    unsigned long sum = 0;
    for (volatile unsigned long i = 0; i < 1000000; i++)
        sum += i;
    kill(child, SIGKILL);
    _exit(sum == 0);
}
"#;
