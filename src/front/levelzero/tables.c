/* SPDX-License-Identifier: MIT */

/*
 * What a loader sees of a driver: functions that fill tables, found by name.
 *
 * Each name is an indirect function: dlsym() runs its resolver and returns what
 * that says, which is the real driver's own function, or NULL where the real
 * driver has none.  So a loader finds here exactly what it would find there,
 * newer tables included; only the tables of modules, build logs and contexts
 * pass through a function of ours, which exchanges a few pointers.  Forwarding
 * by a function would not do: a loader takes a missing function for "not
 * supported", but a failing one for a broken driver.
 *
 * The real driver is loaded when this one is, and never unloaded.  A set-uid
 * program gets the default driver and no function of ours.
 */

#include "front/levelzero/ze.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "front/levelzero/names.h"

#define PUBLIC	       __attribute__((visibility("default")))
#define DEFAULT_DRIVER "libze_intel_gpu.so.1"

struct ki_ze_next ki_ze_next;
struct ki_mutex ki_ze_lock = KI_MUTEX_INIT(PROGRAM);

static void *driver;	    /* fixed once loaded */
static uint64_t generation; /* of forks, when it was loaded */

int ki_ze_is_child(void)
{
	return ki_fork_counter != generation;
}

void *ki_ze_symbol(const char *name)
{
	return driver ? dlsym(driver, name) : NULL;
}

/* ---- Loading --------------------------------------------------------------- */

static struct link_map *map_of_own(void)
{
	struct link_map *map = NULL;
	Dl_info info;

	return dladdr1(&ki_ze_next, &info, (void **)&map, RTLD_DL_LINKMAP)
		       ? map
		       : NULL;
}

/* Whoever names this library as the real driver gets none. */
static int is_own(void *handle)
{
	struct link_map *map = NULL;

	return dlinfo(handle, RTLD_DI_LINKMAP, &map) || map == map_of_own();
}

static void before_fork(void)
{
	ki_guest_hold();
	pthread_mutex_lock(&ki_ze_lock.mutex);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&ki_ze_lock.mutex);
	ki_guest_let_go();
}

/* A child goes on translating; it does not cache. */
static void after_fork_in_child(void)
{
	ki_ze_capture_forget_locked();
	pthread_mutex_unlock(&ki_ze_lock.mutex);
	ki_guest_let_go();
}

__attribute__((constructor)) static void load(void)
{
	const char *name = ki_environment("KILN_ZE_DRIVER");

	driver = dlopen(name && *name ? name : DEFAULT_DRIVER,
			RTLD_LAZY | RTLD_LOCAL);
	if (driver && is_own(driver))
		driver = NULL;
	if (!driver || ki_process_is_secure())
		return;
	generation = ki_fork_generation();
	(void)ki_process_barrier_prepare();
	ki_ze_identity_init();
	ki_ze_capture_init();
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- Tables ------------------------------------------------------------------ */

typedef void entry_fn(void);
typedef ze_result_t get_fn(ze_api_version_t version, void *table);

/* A pointer that is taken from a table: where it lies, where in ki_ze_next it
   goes, and what is put in its place (NULL: it stays). */
struct call {
	size_t slot; /* both in bytes */
	size_t next; /* 0 behind the last */
	entry_fn *own;
	int is_needed; /* without it nothing is exchanged */
};

struct table {
	const char *name;
	struct call calls[5];
	void (*then)(void); /* or NULL */
};

#define CALL(type, pointer, next, own, is_needed)                              \
	{                                                                      \
		offsetof(type, pointer), offsetof(struct ki_ze_next, next),    \
			(entry_fn *)(own), is_needed                           \
	}

#define MODULE(...)  CALL(ze_module_dditable_t, __VA_ARGS__)
#define LOG(...)     CALL(ze_module_build_log_dditable_t, __VA_ARGS__)
#define CONTEXT(...) CALL(ze_context_dditable_t, __VA_ARGS__)

static const struct table modules = {
	"zeGetModuleProcAddrTable",
	{ MODULE(pfnCreate, module_create, ki_ze_module_create, 1),
	  MODULE(pfnDestroy, module_destroy, ki_ze_module_destroy, 1),
	  MODULE(pfnDynamicLink, module_link, ki_ze_module_link, 0),
	  MODULE(pfnGetNativeBinary, module_binary, NULL, 0) },
	ki_ze_identity_tables
};
static const struct table logs = {
	"zeGetModuleBuildLogProcAddrTable",
	{ LOG(pfnDestroy, log_destroy, ki_ze_log_destroy, 1),
	  LOG(pfnGetString, log_string, ki_ze_log_string, 1) },
	NULL
};
static const struct table contexts = { "zeGetContextProcAddrTable",
				       { CONTEXT(pfnDestroy, context_destroy,
						 ki_ze_context_destroy, 1) },
				       NULL };

static entry_fn *read_slot(const void *table, const struct call *call)
{
	entry_fn *found;

	memcpy(&found, (const char *)table + call->slot, sizeof(found));
	return found;
}

/* Whether the driver has filled in what is needed, and not left what is ours
   from an earlier call. */
static int is_filled(const struct table *which, const void *table)
{
	const struct call *call;
	entry_fn *found;

	for (call = which->calls; call->next; call++) {
		found = read_slot(table, call);
		if (found ? found == call->own : call->is_needed)
			return 0;
	}
	return 1;
}

static void exchange(const struct call *call, void *table)
{
	entry_fn *found = read_slot(table, call);

	memcpy((char *)&ki_ze_next + call->next, &found, sizeof(found));
	if (call->own && found)
		memcpy((char *)table + call->slot, &call->own, sizeof(found));
}

/* All of a table is the driver's, of whatever version and size, but for the
   pointers that are exchanged. */
static ze_result_t get(const struct table *which, ze_api_version_t version,
		       void *table)
{
	get_fn *driver_get = (get_fn *)ki_ze_symbol(which->name);
	ze_result_t result = driver_get(version, table);
	const struct call *call;

	if (result || !table || !is_filled(which, table))
		return result;
	ki_ze_next.version = version;
	for (call = which->calls; call->next; call++)
		exchange(call, table);
	if (which->then)
		which->then();
	return result;
}

static ze_result_t get_modules(ze_api_version_t version, void *table)
{
	return get(&modules, version, table);
}

static ze_result_t get_logs(ze_api_version_t version, void *table)
{
	return get(&logs, version, table);
}

static ze_result_t get_contexts(ze_api_version_t version, void *table)
{
	return get(&contexts, version, table);
}

static const struct {
	const struct table *table;
	get_fn *get;
} replaced[] = {
	{ &modules, get_modules },
	{ &logs, get_logs },
	{ &contexts, get_contexts },
};

static void *resolve(const char *name)
{
	void *found = ki_ze_symbol(name);
	size_t i;

	if (!found || ki_process_is_secure())
		return found;
	for (i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++)
		if (!strcmp(name, replaced[i].table->name))
			return (void *)replaced[i].get;
	return found;
}

#define NAME(name)                                                             \
	__attribute__((used)) static entry_fn *resolve_##name(void)            \
	{                                                                      \
		return (entry_fn *)resolve(#name);                             \
	}                                                                      \
	PUBLIC void ki_ze_entry_##name(void) __asm__(#name)                    \
		__attribute__((ifunc("resolve_" #name)));
KI_ZE_NAMES(NAME)
KI_ZE_NEWER_NAMES(NAME)
#undef NAME
