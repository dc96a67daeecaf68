// SPDX-License-Identifier: GPL-2.0
/*
 * Touches given pages in a given order, so that the kernel places the pages of
 * a simulated program:
 *
 *   touch_pages [-w] [-l] [-a ASID] LIST
 *
 * A line of LIST ("-": standard input) is
 *
 *   VPN COUNT         touch COUNT pages of 4 KB from page number VPN on
 *   VPN COUNT huge    the same pages, as 2 MB pages where the kernel allows it
 *
 * in decimal digits. Lines that begin with # are comments. All pages are mapped
 * first, so that the order of the lines makes no difference to the areas.
 * linux/touches.py writes such lists. Run it below dump_frames, or with -w, which waits for a
 * signal after the last page. -l locks the pages in memory. -a asks for hash
 * placement with this number of the address space.
 *
 * Build it with -static-pie: its own pages then lie at random addresses, and not
 * where a simulated program has its code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE	0x100000
#endif

#define PR_HASH_PLACEMENT	0x48504c43
#define PAGE_SHIFT		12
#define HUGE_PAGES		512UL
/* Pages of a 47-bit address space. */
#define MOST_PAGES		(1UL << (47 - PAGE_SHIFT))

static const char *list_name;
static unsigned long line_number;

struct range {
	unsigned long vpn, count, line;
	bool huge;
};

static void fail(const char *what, const char *advice)
{
	fprintf(stderr, "touch_pages: %s, line %lu: %s; %s\n", list_name, line_number, what,
		advice);
	exit(1);
}

/* Reads "VPN COUNT" or "VPN COUNT huge". */
static struct range read_range(char *line)
{
	struct range r = { .line = line_number };
	char *rest, *end;

	/* strtoul would accept a sign and leading spaces. */
	if (!strchr("0123456789", line[0]))
		goto bad;
	errno = 0;
	r.vpn = strtoul(line, &rest, 10);
	if (*rest != ' ' || rest[1] < '0' || rest[1] > '9')
		goto bad;
	r.count = strtoul(rest + 1, &end, 10);
	if (errno)
		goto bad;
	if (!strcmp(end, " huge"))
		r.huge = true;
	else if (*end)
		goto bad;
	if (!r.vpn || !r.count || r.vpn >= MOST_PAGES || r.count > MOST_PAGES - r.vpn)
		fail("the pages lie outside of 47-bit addresses", "expected 1 or more pages in them");
	if (r.huge && (r.vpn % HUGE_PAGES || r.count % HUGE_PAGES))
		fail("the pages are no 2 MB pages", "expected multiples of 512");
	return r;
bad:
	fail("it is no range", "expected VPN COUNT, or VPN COUNT huge");
	exit(1);
}

static int by_address(const void *a, const void *b)
{
	const struct range *first = a, *second = b;

	return first->vpn < second->vpn ? -1 : first->vpn > second->vpn;
}

static void map(unsigned long vpn, unsigned long count, bool huge)
{
	char *at = (char *)(vpn << PAGE_SHIFT);
	size_t bytes = count << PAGE_SHIFT;
	void *got = mmap(at, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (got != at && (got != MAP_FAILED || errno == EEXIST))
		fail("some of the pages are mapped already", "run this again if its own pages lie there");
	if (got == MAP_FAILED)
		fail(strerror(errno),
		     "expected addresses that this kernel has (User Mode Linux: below 512 GB), and fewer ranges than /proc/sys/vm/max_map_count");
	/* A kernel without huge pages refuses both, and has no others than 4 KB pages. */
	madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* Maps the ranges, adjacent ones together, in ascending order of address. */
static void map_all(const struct range *ranges, unsigned long number)
{
	struct range *sorted = malloc(number * sizeof(*sorted));
	unsigned long first = 0;

	if (!number)
		return;
	if (!sorted)
		fail(strerror(errno), "expected memory for the list");
	memcpy(sorted, ranges, number * sizeof(*sorted));
	qsort(sorted, number, sizeof(*sorted), by_address);
	for (unsigned long i = 0; i < number; i++) {
		const struct range *r = sorted + i, *next = r + 1;
		unsigned long end = r->vpn + r->count;

		if (i + 1 < number && end > next->vpn) {
			line_number = r->line > next->line ? r->line : next->line;
			fail("an earlier line has some of the pages", "list each page once");
		}
		if (i + 1 < number && end == next->vpn && r->huge == next->huge)
			continue;
		line_number = sorted[first].line;
		map(sorted[first].vpn, end - sorted[first].vpn, r->huge);
		first = i + 1;
	}
	free(sorted);
}

int main(int argc, char **argv)
{
	bool waits = false, locks = false;
	unsigned long asid = 0;
	int option;
	unsigned long pages = 0, number = 0, room = 0;
	struct range *ranges = NULL;
	char *line = NULL;
	size_t size = 0;
	ssize_t length;
	FILE *list;

	while ((option = getopt(argc, argv, "wla:")) != -1) {
		waits |= option == 'w';
		locks |= option == 'l';
		if (option == 'a')
			asid = strtoul(optarg, NULL, 10);
		if (option == '?')
			argc = 0;
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: touch_pages [-w] [-l] [-a ASID] LIST\n");
		return 2;
	}
	list_name = argv[optind];
	if (asid && prctl(PR_HASH_PLACEMENT, 0, 1, 0, asid))
		fail(strerror(errno), "expected a kernel with hash placement, and 1 to 65535");
	if (locks && mlockall(MCL_FUTURE | MCL_ONFAULT))
		fail(strerror(errno), "expected the permission to lock memory");
	list = strcmp(list_name, "-") ? fopen(list_name, "r") : stdin;
	if (!list) {
		fprintf(stderr, "touch_pages: %s: %s; expected a list of linux/touches.py\n",
			list_name, strerror(errno));
		return 1;
	}
	while ((length = getline(&line, &size, list)) > 0) {
		line_number++;
		if (line[length - 1] == '\n')
			line[length - 1] = 0;
		if (line[0] == '#')
			continue;
		if (number == room) {
			room = room ? 2 * room : 64;
			ranges = realloc(ranges, room * sizeof(*ranges));
			if (!ranges)
				fail(strerror(errno), "expected memory for the list");
		}
		ranges[number++] = read_range(line);
	}
	if (ferror(list)) {
		fprintf(stderr, "touch_pages: %s: %s; expected a list of linux/touches.py\n",
			list_name, strerror(errno));
		return 1;
	}
	map_all(ranges, number);
	for (unsigned long i = 0; i < number; i++) {
		unsigned long step = ranges[i].huge ? HUGE_PAGES : 1;
		char *at = (char *)(ranges[i].vpn << PAGE_SHIFT);

		for (unsigned long page = 0; page < ranges[i].count; page += step)
			*(volatile char *)(at + (page << PAGE_SHIFT)) = 1;
		pages += ranges[i].count;
	}
	printf("touch_pages: %lu pages in %lu ranges\n", pages, number);
	fflush(stdout);
	if (waits)
		pause();
	return 0;
}
