// SPDX-License-Identifier: GPL-2.0
/*
 * Measurements of hash placement, run in a guest. Each result is one line that
 * begins with RESULT and holds a JSON object.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PR_HASH_PLACEMENT	0x48504c43
enum { SET, GET, GET_ASID };
enum { DEFAULT, ON, OFF };

#define FRAMES	"/sys/kernel/debug/hash_placement/frames"
#define PAGE	4096UL
#define TIERS	6
/* Where measured areas lie, so that runs have the same addresses. */
#define AREA	0x2000000000UL

static uint64_t seed, first, frames;
static uint64_t random_state = 88172645463325252ULL;

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("measure: ");
	vprintf(format, args);
	printf(": %s\n", strerror(errno));
	exit(1);
}

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

static uint64_t mix(uint64_t h)
{
	h = (h ^ h >> 33) * 0xff51afd7ed558ccdULL;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return h ^ h >> 33;
}

static int tier_of(uint64_t asid, uint64_t number, uint64_t frame)
{
	for (int tier = 0; tier < TIERS; tier++) {
		uint64_t s = mix(seed + (tier + 1) * 0x9e3779b97f4a7c15ULL);
		uint64_t h = mix((asid << 48 | number) ^ s);

		if (first + (uint64_t)(((unsigned __int128)h * frames) >> 64) == frame)
			return tier + 1;
	}
	return 0;
}

static bool patched(void)
{
	return access(FRAMES, F_OK) == 0;
}

static void read_parameters(void)
{
	FILE *list = fopen(FRAMES, "r+");

	if (!list)
		fail("%s", FRAMES);
	fprintf(list, "%d\n", getpid());
	fflush(list);
	rewind(list);
	if (fscanf(list, "pagewalk-frames version=1 first_frame=%lu frames=%lu page_size=4096 tiers=%*d seed=%lu",
		   &first, &frames, &seed) != 3)
		fail("the header of %s", FRAMES);
	fclose(list);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail("%s", path);
	close(fd);
}

static void control(int mode, int tiers, int asid)
{
	if (patched() && prctl(PR_HASH_PLACEMENT, SET, mode, tiers, asid))
		fail("prctl");
}

static int asid(void)
{
	return prctl(PR_HASH_PLACEMENT, GET_ASID, 0, 0, 0);
}

/* A value of a file with lines of a name and a number. */
static uint64_t value(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	uint64_t found = 0;
	size_t length = strlen(name);

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length) && (line[length] == ' ' || line[length] == ':'))
			found = strtoull(line + length + 1, NULL, 10);
	if (file)
		fclose(file);
	return found;
}

static uint64_t vmstat(const char *name)
{
	char full[64];

	snprintf(full, sizeof(full), "hash_placement_%s", name);
	return value("/proc/vmstat", full);
}

/* Sum of a value over the zones. */
static uint64_t zones(const char *format)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	uint64_t total = 0, each;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &each) == 1)
			total += each;
	fclose(file);
	return total;
}

/* Share of the frames that are in use. Pages in per-CPU lists are not. */
static double pressure(void)
{
	if (!access("/proc/sys/vm/stat_refresh", W_OK))
		write_file("/proc/sys/vm/stat_refresh", "1");
	return 1 - (double)(value("/proc/vmstat", "nr_free_pages") + zones(" count: %lu")) / frames;
}

static char *map_at(unsigned long at, unsigned long pages)
{
	char *got = mmap((void *)at, pages * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			 (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	if (got == MAP_FAILED)
		fail("mmap of %lu pages", pages);
	madvise(got, pages * PAGE, MADV_NOHUGEPAGE);
	return got;
}

static void locate(unsigned long at, unsigned long pages, uint64_t *pfns)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);

	for (unsigned long done = 0; done < pages;) {
		ssize_t got = pread(fd, pfns + done, (pages - done) * 8, (at / PAGE + done) * 8);

		if (got <= 0)
			fail("pagemap");
		done += got / 8;
	}
	for (unsigned long i = 0; i < pages; i++)
		pfns[i] = pfns[i] >> 63 ? pfns[i] << 9 >> 9 : 0;
	close(fd);
}

/* Counts pages by tier, computed here and not by the kernel. */
static void count(unsigned long at, unsigned long pages, unsigned long *tiers)
{
	uint64_t *pfns = malloc(pages * 8);

	locate(at, pages, pfns);
	memset(tiers, 0, (TIERS + 1) * sizeof(*tiers));
	for (unsigned long i = 0; i < pages; i++)
		tiers[tier_of(asid(), at / PAGE + i, pfns[i])]++;
	free(pfns);
}

/* --- fillers: processes that hold frames until they are told to end --- */

static pid_t fillers[256];
static int filler_count;

/*
 * Starts a filler that takes all free memory but a rest, and gives back pages
 * until the pressure is @target. Pages are given back in runs of @run: single
 * pages leave random frames in use, long runs fragment memory as programs do.
 */
static void fill(double target, unsigned long run)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready))
		fail("pipe");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		uint64_t free_pages = value("/proc/vmstat", "nr_free_pages");
		unsigned long pages = free_pages - free_pages / 30 - 1500, held = pages;
		char *at;
		bool *gone;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		control(OFF, 0, 0);
		at = map_at(0, pages);
		gone = calloc(pages / run + 1, 1);
		for (unsigned long i = 0; i < pages; i++)
			at[i * PAGE] = 1;
		while (held > run && pressure() > target) {
			/* Many at a time while the target is far, one at the end. */
			double over = (pressure() - target) * frames / run;
			long batch = over > 2 ? over / 2 : 1;

			while (batch > 0 && held > run) {
				unsigned long n = next_random() % (pages / run);

				if (gone[n])
					continue;
				gone[n] = true;
				madvise(at + n * run * PAGE, run * PAGE, MADV_DONTNEED);
				held -= run;
				batch--;
			}
		}
		if (write(ready[1], "x", 1) != 1)
			fail("pipe");
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("a filler ended early");
	close(ready[0]);
	fillers[filler_count++] = pid;
}

static void empty(void)
{
	while (filler_count) {
		kill(fillers[--filler_count], SIGKILL);
		waitpid(fillers[filler_count], NULL, 0);
	}
}

/* Runs @work in a child, so that its memory is given back. */
static void in_child(void (*work)(void *), void *argument)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		work(argument);
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (status)
		fail("a measurement ended with status %d", status);
}

static void print_tiers(const char *name, const unsigned long *tiers)
{
	printf(", \"%s\": [", name);
	for (int i = 1; i <= TIERS; i++)
		printf("%s%lu", i > 1 ? ", " : "", tiers[i]);
	printf("], \"%s_fallback\": %lu", name, tiers[0]);
}

/* --- figure 10 --- */

struct distribution {
	double target;
	unsigned long run;
	int hashes;
	unsigned long pages;
};

static void distribution(void *argument)
{
	struct distribution *d = argument;
	unsigned long tiers[TIERS + 1], tables[TIERS + 1];
	static const char * const names[] = { "table_fallback", "table_1", "table_2", "table_3",
					      "table_4", "table_5", "table_6" };
	double before, after;

	control(ON, d->hashes, 0);
	map_at(AREA, d->pages);
	before = pressure();
	for (unsigned long i = 0; i < d->pages; i++)
		((char *)AREA)[i * PAGE] = 1;
	after = pressure();
	count(AREA, d->pages, tiers);
	/* One page in each of many regions: each region needs a page table. */
	for (int i = 0; i <= TIERS; i++)
		tables[i] = vmstat(names[i]);
	for (unsigned long i = 0; i < 300; i++) {
		char *at = map_at(2 * AREA + i * 512 * PAGE, 1);

		*at = 1;
	}
	for (int i = 0; i <= TIERS; i++)
		tables[i] = vmstat(names[i]) - tables[i];
	printf("RESULT {\"kind\": \"distribution\", \"target\": %.2f, \"run\": %lu, \"hashes\": %d, \"pages\": %lu, \"pressure_before\": %.5f, \"pressure_after\": %.5f",
	       d->target, d->run, d->hashes, d->pages, before, after);
	print_tiers("tiers", tiers);
	print_tiers("tables", tables);
	printf("}\n");
}

/* Repeats have address spaces of their own, and so other frames. */
#define REPEATS 8

static void figure10(unsigned long pages)
{
	static const unsigned long runs[] = { 1, 64 };

	for (int r = 0; r < 2; r++)
		for (int percent = 20; percent <= 80; percent += 20) {
			fill(percent / 100.0, runs[r]);
			for (int hashes = 1; hashes <= TIERS; hashes++) {
				struct distribution d = { percent / 100.0, runs[r], hashes, pages };

				for (int i = 0; i < REPEATS; i++)
					in_child(distribution, &d);
			}
			empty();
		}
}

/* --- section 3.2: overlap of mappings between runs --- */

#define OVERLAP_PAGES 256UL

struct run {
	int mode;
	uint64_t *pfns;
};

static void overlap_run(void *argument)
{
	struct run *r = argument;

	/* One number for all runs, as one hardware context would have. */
	control(r->mode, 0, r->mode == ON ? 777 : 0);
	map_at(AREA, OVERLAP_PAGES);
	for (unsigned long i = 0; i < OVERLAP_PAGES; i++)
		((char *)AREA)[i * PAGE] = 1;
	locate(AREA, OVERLAP_PAGES, r->pfns);
}

static double overlap_of(const uint64_t *a, const uint64_t *b)
{
	unsigned long same = 0;

	for (unsigned long i = 0; i < OVERLAP_PAGES; i++)
		same += a[i] && a[i] == b[i];
	return (double)same / OVERLAP_PAGES;
}

/* A neighbour that allocates and frees without a pause. */
static pid_t neighbour(int mode)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	control(mode, 0, 0);
	for (;;) {
		unsigned long pages = 64 + next_random() % 2048;
		char *at = map_at(0, pages);

		for (unsigned long i = 0; i < pages; i++)
			at[i * PAGE] = 1;
		munmap(at, pages * PAGE);
	}
}

static void overlap(void)
{
	static const char * const names[] = { "reboot", "isolation", "isolation again", "parallel", "fragmented" };
	uint64_t *maps = mmap(NULL, 10 * OVERLAP_PAGES * 8, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (int m = 0; m < 2; m++) {
		int mode = m ? ON : OFF;

		for (int s = 0; s < 5; s++) {
			struct run r = { mode, maps + (5 * m + s) * OVERLAP_PAGES };
			pid_t other = 0;

			if (s == 3) {
				other = neighbour(mode);
				usleep(200000);
			}
			if (s == 4)
				fill(0.7, 16);
			in_child(overlap_run, &r);
			if (other) {
				kill(other, SIGKILL);
				waitpid(other, NULL, 0);
			}
			empty();
		}
		for (int a = 0; a < 5; a++)
			for (int b = a + 1; b < 5; b++)
				printf("RESULT {\"kind\": \"overlap\", \"hashed\": %s, \"a\": \"%s\", \"b\": \"%s\", \"overlap\": %.4f}\n",
				       m ? "true" : "false", names[a], names[b],
				       overlap_of(maps + (5 * m + a) * OVERLAP_PAGES,
						  maps + (5 * m + b) * OVERLAP_PAGES));
	}
}

/* --- pages that still lie where a hash says, after other activity --- */

struct churn {
	unsigned long pages, seconds;
};

static void churn_step(const char *name, unsigned long round, time_t began, unsigned long pages)
{
	unsigned long tiers[TIERS + 1];

	count(AREA, pages, tiers);
	printf("RESULT {\"kind\": \"churn\", \"after\": \"%s\", \"round\": %lu, \"seconds\": %lu, \"faults\": %lu, \"pages\": %lu, \"migrate_lost\": %lu, \"migrate_gained\": %lu",
	       name, round, (unsigned long)(time(NULL) - began), value("/proc/vmstat", "pgfault"),
	       pages, vmstat("migrate_lost"), vmstat("migrate_gained"));
	print_tiers("tiers", tiers);
	printf("}\n");
	fflush(stdout);
}

static void touch(unsigned long first, unsigned long pages)
{
	for (unsigned long i = first; i < first + pages; i++)
		((char *)AREA)[i * PAGE] = 1;
}

/* Rounds of other processes, of freed pages and of swap, until the time is over. */
static void churn(void *argument)
{
	const struct churn *c = argument;
	unsigned long pages = c->pages, round = 0;
	bool swaps = value("/proc/meminfo", "SwapTotal");
	time_t began = time(NULL);
	pid_t others[4];

	control(ON, 0, 0);
	map_at(AREA, pages);
	touch(0, pages);
	churn_step("allocation", 0, began, pages);
	do {
		unsigned long half = ++round % 2 ? 0 : pages / 2;

		for (int i = 0; i < 4; i++)
			others[i] = neighbour(i % 2 ? ON : OFF);
		sleep(10);
		for (int i = 0; i < 4; i++) {
			kill(others[i], SIGKILL);
			waitpid(others[i], NULL, 0);
		}
		churn_step("10 s of four processes", round, began, pages);
		madvise((char *)AREA + half * PAGE, pages / 2 * PAGE, MADV_DONTNEED);
		touch(half, pages / 2);
		churn_step("half is freed and touched again", round, began, pages);
		if (swaps) {
			madvise((char *)AREA + half * PAGE, pages / 4 * PAGE,
				21 /* MADV_PAGEOUT */);
			touch(half, pages / 4);
			churn_step("a quarter is swapped out and in", round, began, pages);
		}
	} while (time(NULL) - began < (time_t)c->seconds);
	write_file("/proc/sys/vm/compact_memory", "1");
	churn_step("compaction on request", round, began, pages);
	madvise((void *)AREA, pages * PAGE, MADV_DONTNEED);
	touch(0, pages);
	churn_step("all is freed and touched again", round, began, pages);
}

/* The emulated time stamp counter counts instructions. */
static inline uint64_t instructions(void)
{
#ifdef __x86_64__
	uint32_t low, high;

	asm volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
#else
	return 0;
#endif
}

/* Frames that were just freed: how many does a second touch find again? */
static void reuse(void *argument)
{
	unsigned long pages = *(unsigned long *)argument, tiers[TIERS + 1];
	uint64_t parked = vmstat("parked"), began;

	control(ON, 0, 0);
	for (int round = 0; round < 2; round++) {
		map_at(AREA, pages);
		began = instructions();
		for (unsigned long i = 0; i < pages; i++)
			((char *)AREA)[i * PAGE] = 1;
		began = instructions() - began;
		count(AREA, pages, tiers);
		munmap((void *)AREA, pages * PAGE);
		printf("RESULT {\"kind\": \"reuse\", \"round\": %d, \"pages\": %lu, \"parked\": %lu, \"instructions\": %lu",
		       round, pages, vmstat("parked") - parked, began);
		print_tiers("tiers", tiers);
		printf("}\n");
	}
}

/* --- cost --- */

#define ROUNDS 5UL

struct cost {
	int mode;
	unsigned long pages;
	uint64_t *each;		/* cost of each fault */
};

static void faults(void *argument)
{
	struct cost *c = argument;

	control(c->mode, 0, 0);
	map_at(AREA, c->pages);
	/* The table and the first pages are not measured. */
	((char *)AREA)[0] = 1;
	for (unsigned long i = 0; i < c->pages; i++) {
		char *at = (char *)AREA + i * PAGE;
		uint64_t began = instructions();

		*at = 1;
		c->each[i] = instructions() - began;
	}
	munmap((void *)AREA, c->pages * PAGE);
}

static const char * const causes[] = { "calls", "check", "search", "lists", "lock", "split",
				       "prep", "hash" };
#define CAUSES	(sizeof(causes) / sizeof(*causes))
#define CYCLES	"/sys/kernel/debug/hash_placement_cycles/"

/* Instructions by cause, from a kernel with the measurement patch. */
static bool read_causes(uint64_t *into)
{
	char path[128];

	for (unsigned long i = 0; i < CAUSES; i++) {
		FILE *file;

		snprintf(path, sizeof(path), CYCLES "%s", causes[i]);
		file = fopen(path, "r");
		if (!file || fscanf(file, "%lu", into + i) != 1)
			return false;
		fclose(file);
	}
	return true;
}

/* Prints the cost of each fault: the host computes the intervals. */
static void fault_cost(const char *kernel, const char *state, double at, unsigned long pages)
{
	uint64_t *each = mmap(NULL, pages * 8, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint64_t before[CAUSES], after[CAUSES];
	bool by_cause = read_causes(before);

	for (int round = 0; round < (int)ROUNDS; round++) {
		struct cost c = { DEFAULT, pages, each };

		in_child(faults, &c);
		printf("RESULT {\"kind\": \"faults\", \"kernel\": \"%s\", \"state\": \"%s\", \"pressure\": %.1f, \"round\": %d, \"instructions\": [",
		       kernel, state, at, round);
		for (unsigned long i = 1; i < pages; i++)
			printf("%s%lu", i > 1 ? "," : "", each[i]);
		printf("]}\n");
	}
	if (by_cause && read_causes(after)) {
		printf("RESULT {\"kind\": \"causes\", \"kernel\": \"%s\", \"state\": \"%s\", \"pressure\": %.1f, \"faults\": %lu",
		       kernel, state, at, ROUNDS * pages);
		for (unsigned long i = 0; i < CAUSES; i++)
			printf(", \"%s\": %lu", causes[i], after[i] - before[i]);
		printf("}\n");
	}
	munmap(each, pages * 8);
}

/* Pages and page tables that placement was asked for. */
static uint64_t requests(void)
{
	static const char * const kinds[] = { "page", "table" };
	uint64_t sum = 0;

	for (int k = 0; k < 2; k++)
		for (int tier = 0; tier <= TIERS; tier++) {
			char name[32];

			snprintf(name, sizeof(name), tier ? "%s_%d" : "%s_fallback", kinds[k], tier);
			sum += vmstat(name);
		}
	return sum;
}

/* Instructions from the start to the end of a program, kernel included. */
static void life(const char *kernel, const char *state, double at, const char *command, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		uint64_t began, before = requests(), took;
		int status;
		pid_t pid;

		fflush(stdout);
		began = instructions();
		pid = fork();
		if (!pid) {
			execl("/bin/busybox", "sh", "-c", command, NULL);
			_exit(127);
		}
		waitpid(pid, &status, 0);
		took = instructions() - began;
		printf("RESULT {\"kind\": \"life\", \"kernel\": \"%s\", \"state\": \"%s\", \"pressure\": %.1f, \"round\": %d, \"command\": \"%s\", \"instructions\": %lu, \"requests\": %lu}\n",
		       kernel, state, at, round, command, took, requests() - before);
		if (status)
			fail("%s ended with status %d", command, status);
	}
}

/* The same bytes in each guest. */
static void write_data(const char *path)
{
	FILE *file = fopen(path, "w");

	for (int i = 0; i < 1 << 17; i++) {
		uint64_t word = next_random();

		if (!file || fwrite(&word, sizeof(word), 1, file) != 1)
			fail("%s", path);
	}
	if (fclose(file))
		fail("%s", path);
}

#define PROACTIVENESS	"/proc/sys/vm/compaction_proactiveness"

static void costs(const char *kernel)
{
	/* Short programs are repeated more often. */
	static const struct {
		const char *command;
		int rounds;
	} programs[] = {
		{ "gzip -c /tmp/data | gunzip -c >/dev/null", 9 },
		{ "sort /tmp/data >/dev/null", 9 },
		{ "sha256sum /tmp/data >/dev/null", 9 },
		{ "i=0; while [ $i -lt 20 ]; do /bin/busybox true; i=$((i+1)); done", 33 },
	};
	static const double pressures[] = { 0, 0.5, 0.8 };
	bool is_patched = patched(), by_cause = access(CYCLES, F_OK) == 0;

	write_data("/tmp/data");
	/* Enabled placement switches it off, so that it would count for one side only. */
	write_file(PROACTIVENESS, "0");
	for (int p = 0; p < 3; p++) {
		if (pressures[p])
			fill(pressures[p], 1);
		for (int on = 0; on <= (is_patched ? 1 : 0); on++) {
			const char *state = !is_patched ? "unpatched" : on ? "on" : "off";

			/* 2 enables it for all, 0 disables it by the static key. */
			if (is_patched)
				write_file("/proc/sys/vm/hash_placement", on ? "2" : "0");
			fault_cost(kernel, state, pressures[p], 4000);
			/*
			 * Programs are compared with placement off in the same guest.
			 * The time stamps of causes would count.
			 */
			for (unsigned long i = 0; is_patched && !by_cause && i < sizeof(programs) / sizeof(*programs); i++)
				life(kernel, state, pressures[p], programs[i].command,
				     programs[i].rounds);
		}
		empty();
	}
}

/* Lists of the CPUs: the cost and the success of each way to treat them. */
static void per_cpu_lists(unsigned long pages)
{
	static const char * const ways[] = { "none", "drain", "search", "marks" };
	for (int way = 0; way < 4; way++) {
		char text[2] = { '0' + way };

		write_file(CYCLES "pcp", text);
		printf("RESULT {\"kind\": \"way\", \"way\": \"%s\"}\n", ways[way]);
		in_child(reuse, &pages);
		write_file("/proc/sys/vm/hash_placement", "2");
		fault_cost("measure", ways[way], 0, pages);
		life("measure", ways[way], 0, "i=0; while [ $i -lt 20 ]; do /bin/busybox true; i=$((i+1)); done",
		     ROUNDS);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	unsigned long pages = argc > 2 ? strtoul(argv[2], NULL, 0) : 1500;

	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	frames = zones(" spanned %lu");
	if (patched()) {
		write_file("/proc/sys/vm/hash_placement", "1");
		read_parameters();
		printf("RESULT {\"kind\": \"hash\", \"first_frame\": %lu, \"frames\": %lu, \"seed\": %lu}\n",
		       first, frames, seed);
	}
	if (!strcmp(what, "figure10"))
		figure10(pages);
	else if (!strcmp(what, "overlap"))
		overlap();
	else if (!strcmp(what, "churn"))
		in_child(churn, &(struct churn){ pages, argc > 3 ? strtoul(argv[3], NULL, 0) : 0 });
	else if (!strcmp(what, "reuse"))
		in_child(reuse, &pages);
	else if (!strcmp(what, "costs"))
		costs(argc > 2 ? argv[2] : "unknown");
	else if (!strcmp(what, "lists"))
		per_cpu_lists(pages);
	else
		fail("measure figure10|overlap|churn|reuse|lists|costs");
	return 0;
}
