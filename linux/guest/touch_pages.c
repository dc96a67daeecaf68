// SPDX-License-Identifier: GPL-2.0
/*
 * Touches given pages in a given order, so that the kernel places the pages of
 * a simulated program:
 *
 *   touch_pages [-w] LIST
 *
 * A line of LIST ("-": standard input) is
 *
 *   VPN COUNT         touch COUNT pages of 4 KB from page number VPN on
 *   VPN COUNT huge    the same pages, as 2 MB pages where the kernel allows it
 *
 * in decimal digits. Lines that begin with # are comments. linux/touches.py
 * writes such lists. Run it below dump_frames, or with -w, which waits for a
 * signal after the last page.
 *
 * Build it with -static-pie: its own pages then lie at random addresses, and not
 * where a simulated program has its code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE	0x100000
#endif

#define PAGE_SHIFT		12
#define HUGE_PAGES		512UL
/* Pages of a 47-bit address space. */
#define MOST_PAGES		(1UL << (47 - PAGE_SHIFT))

static const char *list_name;
static unsigned long line_number;

static void fail(const char *what, const char *advice)
{
	fprintf(stderr, "touch_pages: %s, line %lu: %s; %s\n", list_name, line_number, what,
		advice);
	exit(1);
}

/* Reads "VPN COUNT" or "VPN COUNT huge". */
static void read_range(char *line, unsigned long *vpn, unsigned long *count, int *huge)
{
	char *rest, *end;

	*huge = 0;
	/* strtoul would accept a sign and leading spaces. */
	if (!strchr("0123456789", line[0]))
		goto bad;
	errno = 0;
	*vpn = strtoul(line, &rest, 10);
	if (*rest != ' ' || rest[1] < '0' || rest[1] > '9')
		goto bad;
	*count = strtoul(rest + 1, &end, 10);
	if (errno)
		goto bad;
	if (!strcmp(end, " huge"))
		*huge = 1;
	else if (*end)
		goto bad;
	if (!*vpn || !*count || *vpn >= MOST_PAGES || *count > MOST_PAGES - *vpn)
		fail("the pages lie outside of 47-bit addresses", "expected 1 or more pages in them");
	if (*huge && (*vpn % HUGE_PAGES || *count % HUGE_PAGES))
		fail("the pages are no 2 MB pages", "expected multiples of 512");
	return;
bad:
	fail("it is no range", "expected VPN COUNT, or VPN COUNT huge");
}

static void touch(unsigned long vpn, unsigned long count, int huge)
{
	char *at = (char *)(vpn << PAGE_SHIFT);
	size_t bytes = count << PAGE_SHIFT;
	unsigned long page, step = huge ? HUGE_PAGES : 1;
	void *got = mmap(at, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (got != at && (got != MAP_FAILED || errno == EEXIST))
		fail("some of the pages are mapped already",
		     "list each page once, or run this again if its own pages lie there");
	if (got == MAP_FAILED)
		fail(strerror(errno),
		     "expected addresses that this kernel has (User Mode Linux: below 512 GB), and fewer ranges than /proc/sys/vm/max_map_count");
	/* A kernel without huge pages refuses both, and has no others than 4 KB pages. */
	madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (page = 0; page < count; page += step)
		*(volatile char *)(at + (page << PAGE_SHIFT)) = 1;
}

int main(int argc, char **argv)
{
	int waits = argc > 1 && !strcmp(argv[1], "-w");
	unsigned long vpn, count, pages = 0, ranges = 0;
	char *line = NULL;
	size_t size = 0;
	ssize_t length;
	FILE *list;
	int huge;

	if (argc != 2 + waits) {
		fprintf(stderr, "usage: touch_pages [-w] LIST\n");
		return 2;
	}
	list_name = argv[1 + waits];
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
		read_range(line, &vpn, &count, &huge);
		touch(vpn, count, huge);
		pages += count;
		ranges++;
	}
	if (ferror(list)) {
		fprintf(stderr, "touch_pages: %s: %s; expected a list of linux/touches.py\n",
			list_name, strerror(errno));
		return 1;
	}
	printf("touch_pages: %lu pages in %lu ranges\n", pages, ranges);
	fflush(stdout);
	if (waits)
		pause();
	return 0;
}
