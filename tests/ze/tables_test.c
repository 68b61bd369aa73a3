/* SPDX-License-Identifier: MIT */

/*
 * The tables that the proxy hands to loaders, older and newer ones, beside what
 * drivers older and newer hand out (tables.c prints both).  What is not replaced
 * is the driver's own function: it costs nothing.
 */

#include "harness/harness.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "front/levelzero/names.h"

#define INTEL "libze_intel_gpu.so.1"

static const char *tables, *ours, *stand_in, *newer; /* paths */

#define NAME(name) #name,
static const char *const names[] = { KI_ZE_NAMES(NAME) };
static const char *const newer_names[] = { KI_ZE_NEWER_NAMES(NAME) };
#undef NAME
#define N_NAMES	      (sizeof(names) / sizeof(names[0]))
#define N_NEWER_NAMES (sizeof(newer_names) / sizeof(newer_names[0]))

static int is_one_of(const char *const *list, size_t n, const char *name)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(list[i], name))
			return 1;
	return 0;
}

/* ---- What loaders ask for ------------------------------------------------------ */

static char *loader_file(size_t *out_size)
{
	void *loader = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
	struct link_map *map = NULL;

	return loader && !dlinfo(loader, RTLD_DI_LINKMAP, &map)
		       ? harness_read(map->l_name, out_size)
		       : NULL;
}

/* ze, of which kind, "Get", what, "ProcAddrTable"; those that begin with zel are
   the tracing layer's. */
static int is_name(const char *text)
{
	static const char end[] = "ProcAddrTable";
	size_t size = strlen(text), n = sizeof(end) - 1;

	return size > n && !strcmp(text + size - n, end) &&
	       (!strncmp(text, "zeGet", 5) || !strncmp(text, "zerGet", 6) ||
		!strncmp(text, "zesGet", 6) || !strncmp(text, "zetGet", 6));
}

static void every_name_that_the_loader_asks_for_is_known(void **state)
{
	char *file, *text;
	size_t size = 0, i, n = 0;
	int has[N_NAMES] = { 0 };

	file = loader_file(&size);
	if (!file)
		HARNESS_LEAVE_OUT("no loader here");
	for (text = file; text < file + size; text += strlen(text) + 1) {
		if (!is_name(text))
			continue;
		if (!is_one_of(names, N_NAMES, text) &&
		    !is_one_of(newer_names, N_NEWER_NAMES, text))
			print_message("# not known: %s\n", text), n++;
		for (i = 0; i < N_NAMES; i++)
			has[i] |= !strcmp(text, names[i]);
	}
	assert_int_equal(n, 0);
	for (i = 0; i < N_NAMES; i++)
		if (!has[i])
			print_message("# not asked for: %s\n", names[i]), n++;
	assert_int_equal(n, 0);
	assert_int_equal(N_NAMES, 53);
	free(file);
}

/* ---- What is handed out --------------------------------------------------------- */

/* What `tables` prints; NULL if it fails. */
static char *run(const char *program, const char *driver, const char *other,
		 const char *version)
{
	struct ki_bytes text;
	char *command, room[4096];
	size_t size;
	FILE *pipe;

	assert_true(asprintf(&command, "KILN_ZE_DRIVER=%s '%s' '%s' '%s' %s",
			     driver, program, ours, other, version) > 0);
	ki_bytes_init(&text);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	while ((size = fread(room, 1, sizeof(room), pipe)))
		ki_bytes_add(&text, room, size);
	ki_bytes_add_u8(&text, '\0');
	free(command);
	if (pclose(pipe)) {
		ki_bytes_fini(&text);
		return NULL;
	}
	return (char *)ki_bytes_take(&text, &size);
}

struct row {
	const char *name;
	const char **driver;
	const char *version;
	const char *newer; /* what is said of names that came later */
	/* What is said of the three tables that are changed. */
	const char *contexts, *modules, *logs;
};

static const struct row rows[] = {
	{ "a loader and a driver of the same age", &stand_in, "10004", "none",
	  "0 2: 1", "0 6: 0 1 2", "0 2: 0 1" },
	{ "an older loader", &stand_in, "10000", "none", "0 2: 1", "0 6: 0 1 2",
	  "0 2: 0 1" },
	{ "a loader that the driver is too new for", &stand_in, "1", "none",
	  "78000002 0:", "78000002 0:", "78000002 0:" },
	{ "a newer driver", &newer, "10004", "same", "0 2: 1", "0 6: 0 1 2",
	  "0 2: 0 1" },
	{ "a newer loader, whose tables are longer", &newer, "1000d", "same",
	  "0 2: 1", "0 7: 0 1 2", "0 2: 0 1" },
};

static char *expected(const struct row *row)
{
	struct ki_bytes text;
	const char *what;
	size_t i;

	ki_bytes_init(&text);
	ki_bytes_printf(&text, "secure 0\n");
	for (i = 0; i < N_NAMES; i++) {
		what = "same";
		if (!strcmp(names[i], "zeGetContextProcAddrTable"))
			what = row->contexts;
		else if (!strcmp(names[i], "zeGetModuleProcAddrTable"))
			what = row->modules;
		else if (!strcmp(names[i], "zeGetModuleBuildLogProcAddrTable"))
			what = row->logs;
		ki_bytes_printf(&text, "%s %s\n", names[i], what);
	}
	for (i = 0; i < N_NEWER_NAMES; i++)
		ki_bytes_printf(&text, "%s %s\n", newer_names[i], row->newer);
	ki_bytes_add_u8(&text, '\0');
	return (char *)ki_bytes_take(&text, &i);
}

static void all_but_six_pointers_are_the_drivers_own(void **state)
{
	char *text, *wanted;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("# %s\n", rows[i].name);
		text = run(tables, *rows[i].driver, *rows[i].driver,
			   rows[i].version);
		wanted = expected(&rows[i]);
		assert_non_null(text);
		assert_string_equal(text, wanted);
		free(text);
		free(wanted);
	}
}

/* Whether the line of a function ends so. */
static int ends(const char *text, const char *name, const char *words)
{
	const char *found = strstr(text, name);
	size_t size = found ? strcspn(found, "\n") : 0, n = strlen(words);

	return size > n && !strncmp(found + size - n, words, n);
}

static void so_it_is_with_intels_driver(void **state)
{
	char *text = run(tables, INTEL, INTEL, "10004"), *line, *rest;
	size_t n_same = 0, n_other = 0;

	if (!text) {
		print_message("# no driver of Intel's here\n");
		skip();
	}
	assert_true(ends(text, "zeGetModuleProcAddrTable", ": 0 1 2"));
	assert_true(ends(text, "zeGetModuleBuildLogProcAddrTable", ": 0 1"));
	for (rest = text; (line = strsep(&rest, "\n"));) {
		n_same += strstr(line, " same") != NULL;
		n_other += strchr(line, ':') != NULL;
	}
	assert_int_equal(n_other, 3);
	assert_true(n_same > 40);
	free(text);
}

static void a_driver_that_has_nothing_leaves_nothing(void **state)
{
	char *text = run(tables, "libm.so.6", "libm.so.6", "10004");

	assert_non_null(text);
	assert_null(strstr(text, "same"));
	assert_null(strchr(text, ':'));
	free(text);
}

/* ---- With more privileges than its user ------------------------------------------ */

/* A group that this process may give files to and is not its own; 0: none. */
static gid_t other_group(void)
{
	gid_t groups[64];
	int n = getgroups(64, groups), i;

	if (!geteuid())
		return getgid() == 1 ? 2 : 1;
	for (i = 0; i < n; i++)
		if (groups[i] != getgid())
			return groups[i];
	return 0;
}

/* The program again, set-gid; NULL if that cannot be. */
static char *make_secure(const char *directory)
{
	char *path = harness_path(directory, "tables"), *bytes;
	size_t size;

	bytes = harness_read(tables, &size);
	assert_non_null(bytes);
	harness_write(path, bytes, size);
	free(bytes);
	if (other_group() && !chown(path, (uid_t)-1, other_group()) &&
	    !chmod(path, 02755))
		return path;
	free(path);
	return NULL;
}

/* S38 */
static void in_a_set_gid_program_the_environment_is_not_believed(void **state)
{
	char *directory = harness_directory();
	char *program = make_secure(directory);
	char *text = program ? run(program, stand_in, INTEL, "10004") : NULL;

	if (!text || strncmp(text, "secure 1\n", 9)) {
		print_message("# no such programs here\n");
	} else {
		/* Not one function is ours, and none is the stand-in's. */
		assert_non_null(strstr(text, "zeGetModuleProcAddrTable same"));
		assert_null(strchr(text, ':'));
	}
	free(text);
	free(program);
	harness_remove(directory);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_that_the_loader_asks_for_is_known),
		cmocka_unit_test(all_but_six_pointers_are_the_drivers_own),
		cmocka_unit_test(so_it_is_with_intels_driver),
		cmocka_unit_test(a_driver_that_has_nothing_leaves_nothing),
		cmocka_unit_test(
			in_a_set_gid_program_the_environment_is_not_believed),
	};

	assert_int_equal(argc, 5);
	tables = argv[1];
	ours = argv[2];
	stand_in = argv[3];
	newer = argv[4];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
