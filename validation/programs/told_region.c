/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks a region of interest in a program as it was installed: preloaded, it begins
 * behind the first message that contains REGION_BEGIN (from the environment) and ends
 * before the first one after that with REGION_END.
 *
 *     ld-linux-x86-64.so.2 --preload ./told_region.so PROGRAM ... */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagewalk.h"

static int begun, ended;

static int contains(const char *text, size_t length, const char *name) {
    const char *wanted = getenv(name);
    return wanted && memmem(text, length, wanted, strlen(wanted));
}

static size_t put(const char *text, size_t length, FILE *stream) {
    if (begun && !ended && contains(text, length, "REGION_END")) {
        ended = 1;
        pagewalk_roi_end();
    }
    size_t written = fwrite_unlocked(text, 1, length, stream);
    if (!begun && contains(text, length, "REGION_BEGIN")) {
        begun = 1;
        fflush(stream);
        pagewalk_roi_begin();
    }
    return written;
}

static int told(FILE *stream, const char *format, va_list arguments) {
    char *text = NULL;
    int length = vasprintf(&text, format, arguments);
    if (length >= 0)
        put(text, length, stream);
    free(text);
    return length;
}

int __printf_chk(int flag, const char *format, ...) {
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int length = told(stdout, format, arguments);
    va_end(arguments);
    return length;
}

int __fprintf_chk(FILE *stream, int flag, const char *format, ...) {
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int length = told(stream, format, arguments);
    va_end(arguments);
    return length;
}

int puts(const char *text) {
    put(text, strlen(text), stdout);
    return fputc('\n', stdout);
}

size_t fwrite(const void *text, size_t size, size_t count, FILE *stream) {
    size_t written = put(text, size * count, stream);
    return written / (size ? size : 1);
}
