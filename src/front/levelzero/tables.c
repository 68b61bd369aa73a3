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

static ze_result_t get_modules(ze_api_version_t version,
			       ze_module_dditable_t *table)
{
	ze_pfnGetModuleProcAddrTable_t get =
		(ze_pfnGetModuleProcAddrTable_t)ki_ze_symbol(
			"zeGetModuleProcAddrTable");
	ze_result_t result = get(version, table);

	if (result || !table || !table->pfnCreate || !table->pfnDestroy)
		return result;
	ki_ze_next.version = version;
	ki_ze_next.module_destroy = table->pfnDestroy;
	ki_ze_next.module_binary = table->pfnGetNativeBinary;
	ki_ze_next.module_create = table->pfnCreate;
	ki_ze_identity_tables();
	table->pfnCreate = ki_ze_module_create;
	table->pfnDestroy = ki_ze_module_destroy;
	return result;
}

static ze_result_t get_logs(ze_api_version_t version,
			    ze_module_build_log_dditable_t *table)
{
	ze_pfnGetModuleBuildLogProcAddrTable_t get =
		(ze_pfnGetModuleBuildLogProcAddrTable_t)ki_ze_symbol(
			"zeGetModuleBuildLogProcAddrTable");
	ze_result_t result = get(version, table);

	if (result || !table || !table->pfnDestroy || !table->pfnGetString)
		return result;
	ki_ze_next.log_destroy = table->pfnDestroy;
	ki_ze_next.log_string = table->pfnGetString;
	table->pfnDestroy = ki_ze_log_destroy;
	table->pfnGetString = ki_ze_log_string;
	return result;
}

static ze_result_t get_contexts(ze_api_version_t version,
				ze_context_dditable_t *table)
{
	ze_pfnGetContextProcAddrTable_t get =
		(ze_pfnGetContextProcAddrTable_t)ki_ze_symbol(
			"zeGetContextProcAddrTable");
	ze_result_t result = get(version, table);

	if (result || !table || !table->pfnDestroy)
		return result;
	ki_ze_next.context_destroy = table->pfnDestroy;
	table->pfnDestroy = ki_ze_context_destroy;
	return result;
}

static const struct {
	const char *name;
	void *own;
} replaced[] = {
	{ "zeGetModuleProcAddrTable", (void *)get_modules },
	{ "zeGetModuleBuildLogProcAddrTable", (void *)get_logs },
	{ "zeGetContextProcAddrTable", (void *)get_contexts },
};

typedef void entry_fn(void);

static void *resolve(const char *name)
{
	void *found = ki_ze_symbol(name);
	size_t i;

	if (!found || ki_process_is_secure())
		return found;
	for (i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++)
		if (!strcmp(name, replaced[i].name))
			return replaced[i].own;
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
