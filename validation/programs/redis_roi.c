/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A module of Redis whose commands mark the region of interest:
 *
 *     redis-server --loadmodule ./redis_roi.so ...
 *
 * PAGEWALK.BEGIN and PAGEWALK.END are what pagewalk_roi_begin() and
 * pagewalk_roi_end() are in a program of one's own, so a client marks the phase
 * that it wants measured.
 *
 * Declares what it uses of the module interface (redis.io, "Modules API
 * reference") itself: Debian has no redismodule.h. The context of OnLoad begins
 * with the function that gives the others. */
#include "pagewalk.h"

typedef struct Context Context;
typedef struct String String;
typedef int Command(Context *context, String **arguments, int count);

static int (*reply)(Context *context, const char *text);
static int (*create)(Context *context, const char *name, Command *command, const char *flags,
                     int first_key, int last_key, int step);
static void (*attributes)(Context *context, const char *name, int version, int interface);

static int begin(Context *context, String **arguments, int count) {
    (void)arguments, (void)count;
    int status = reply(context, "OK");
    pagewalk_roi_begin();
    return status;
}

static int end(Context *context, String **arguments, int count) {
    (void)arguments, (void)count;
    pagewalk_roi_end();
    return reply(context, "OK");
}

int RedisModule_OnLoad(Context *context, String **arguments, int count) {
    (void)arguments, (void)count;
    int (*get)(const char *name, void *function) = ((__typeof__(get) *)context)[0];
    if (get("RedisModule_SetModuleAttribs", &attributes) ||
        get("RedisModule_CreateCommand", &create) ||
        get("RedisModule_ReplyWithSimpleString", &reply))
        return 1;
    attributes(context, "pagewalk", 1, 1);
    return create(context, "pagewalk.begin", begin, "readonly", 0, 0, 0) ||
           create(context, "pagewalk.end", end, "readonly", 0, 0, 0);
}
