/* SPDX-License-Identifier: MIT */

/*
 * kiln wrap: one run of a compiler that is known by name, from the store if what
 * it depends on is as it was.
 *
 *	key of the command	compiler, arguments, variables, directory, inputs
 *	  -> lists of paths	what such runs were seen to depend on
 *	key of the result	the former, and the state of each of a list's paths
 *	  -> the result		outputs, streams, exit status
 *
 * The state of a path says whether the file is there, and what is in it.  One that
 * changes, goes, or comes where it was looked for in vain makes another key of the
 * result; a run then finds a new list, if it is another.
 *
 * Whatever is not understood, or goes wrong with the store, ends in the compiler's
 * taking our place.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "out.h"
#include "parent.h"
#include "store.h"
#include "verbs.h"
#include "wrap.h"

#define PUT_TRIES 50

struct wrap {
	struct ki_wrap_command command;
	struct kiln *kiln;
	struct kiln_key *key; /* of the command */
	int is_verbose;
	int is_merged;
	/* Of a run, if there was one. */
	int has_run;
	int is_refused; /* the compiler has to take our place */
	struct ki_wrap_result result;
};

static void tell(const struct wrap *wrap, const char *what, const char *why)
{
	if (wrap->is_verbose)
		ki_complain("wrap: %s%s%s", what, why ? ": " : "",
			    why ? why : "");
}

/* ---- Keys -------------------------------------------------------------------- */

static void add_variable(struct kiln_key *key, const char *pattern)
{
	size_t size = strlen(pattern);
	char **variable;

	size -= size && pattern[size - 1] == '*';
	for (variable = environ; *variable; variable++)
		if (!strncmp(*variable, pattern, size) &&
		    (pattern[size] || (*variable)[size] == '='))
			kiln_key_add_local(key, "variable", *variable,
					   strlen(*variable));
}

static void add_variables(struct kiln_key *key, const struct ki_wrap_rule *rule)
{
	static const char *const always[] = { "LD_*", "GLIBC_TUNABLES", "LANG",
					      "LC_*", "LANGUAGE",	NULL };
	const char *const *name;

	for (name = always; *name; name++)
		add_variable(key, *name);
	for (name = rule->variables; *name; name++)
		add_variable(key, *name);
}

/* What does not change with what a run is seen to depend on. */
static int fill_key(const struct wrap *wrap, struct kiln_key *key)
{
	const struct ki_wrap_command *command = &wrap->command;
	char directory[KI_PATH_MAX];
	mode_t mask = umask(0);
	char *const *argument;
	int err;
	size_t i;

	umask(mask);
	if (!getcwd(directory, sizeof(directory)))
		return -errno;
	kiln_key_add_string(key, "compiler name", command->rule->name);
	err = ki_wrap_add_state(key, command->compiler, 1);
	for (argument = command->argv; *argument; argument++)
		kiln_key_add_local(key, "argument", *argument,
				   strlen(*argument));
	add_variables(key, command->rule);
	kiln_key_add_local(key, "directory", directory, strlen(directory));
	kiln_key_add(key, "umask", &mask, sizeof(mask));
	kiln_key_add(key, "streams", &wrap->is_merged, sizeof(wrap->is_merged));
	for (i = 0; i < command->n_inputs && !err; i++)
		err = ki_wrap_add_state(key, command->inputs[i], 0);
	return err;
}

static struct kiln_key *new_key(const struct wrap *wrap, const char *kind)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "kind", kind);
	if (!fill_key(wrap, key))
		return key;
	kiln_key_free(key);
	return NULL;
}

static struct kiln_key *finished(struct kiln_key *key)
{
	if (!kiln_key_finish(key))
		return key;
	kiln_key_free(key);
	return NULL;
}

static struct kiln_key *command_key(const struct wrap *wrap)
{
	return finished(new_key(wrap, "wrap: paths"));
}

static struct kiln_key *result_key(const struct wrap *wrap,
				   const struct ki_wrap_paths *paths)
{
	struct kiln_key *key = new_key(wrap, "wrap: result");

	if (key && !ki_wrap_add_states(key, paths))
		return finished(key);
	kiln_key_free(key);
	return NULL;
}

static int is_same_key(const struct kiln_key *a, const struct kiln_key *b)
{
	return a && b &&
	       !memcmp(kiln_key_digest(a), kiln_key_digest(b),
		       KILN_DIGEST_BYTES);
}

/* ---- Keeping ----------------------------------------------------------------- */

static struct kiln_metadata *describe(const struct wrap *wrap,
				      uint64_t build_ns, int is_hidden)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	char *const *argument = wrap->command.argv + 1;
	struct ki_bytes text;

	ki_bytes_init(&text);
	for (; *argument; argument++)
		ki_bytes_printf(&text, "%s%s", text.size ? " " : "", *argument);
	ki_bytes_add_u8(&text, 0);
	kiln_metadata_add_u64(metadata, KILN_META_CREATED,
			      ki_sys_posix.realtime_ns(&ki_sys_posix) /
				      1000000000u);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, build_ns);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "wrap");
	if (!text.failed)
		kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
					 (char *)text.data);
	if (is_hidden)
		kiln_metadata_add_u64(metadata, KILN_META_FLAGS,
				      KILN_ENTRY_HIDDEN);
	ki_bytes_fini(&text);
	return metadata;
}

/* A store lets a put wait some 20 ms for others that change its structure; what has
   been compiled is worth more. */
static enum kiln_status put(struct wrap *wrap, const struct kiln_key *key,
			    const struct ki_bytes *bytes, uint64_t build_ns,
			    int is_hidden)
{
	struct kiln_metadata *metadata = describe(wrap, build_ns, is_hidden);
	enum kiln_status status =
		bytes->failed ? KILN_E_NO_MEMORY : KILN_E_TIMEOUT;
	int i;

	for (i = 0; i < PUT_TRIES && status == KILN_E_TIMEOUT; i++)
		status = kiln_put(wrap->kiln, key, bytes->data, bytes->size,
				  metadata, KILN_PUT_REPLACE);
	kiln_metadata_free(metadata);
	return status;
}

/* The list goes before those that there are; the oldest makes room. */
static void put_paths(struct wrap *wrap, struct ki_wrap_sets *sets,
		      struct ki_wrap_paths *paths, struct ki_bytes *out)
{
	if (sets->n == KI_WRAP_SETS_MAX)
		ki_wrap_paths_fini(&sets->sets[--sets->n]);
	memmove(sets->sets + 1, sets->sets, sets->n * sizeof(*sets->sets));
	sets->sets[0] = *paths;
	sets->n++;
	memset(paths, 0, sizeof(*paths));
	(void)ki_wrap_sets_encode(sets, out);
	(void)put(wrap, wrap->key, out, 0, 1);
}

/* NULL, or why not. */
static const char *keep(struct wrap *wrap, const struct ki_wrap_paths *paths,
			uint64_t build_ns)
{
	struct kiln_key *now = command_key(wrap), *key = NULL;
	const char *why = "an input changed meanwhile";
	enum kiln_status status;
	struct ki_bytes bytes;

	/* The inputs must be what they were when the key was made. */
	if (is_same_key(now, wrap->key)) {
		key = result_key(wrap, paths);
		why = "what it depends on cannot be read";
	}
	ki_bytes_init(&bytes);
	if (key) {
		(void)ki_wrap_encode(&wrap->result, &bytes);
		status = put(wrap, key, &bytes, build_ns, 0);
		why = status < 0 ? ki_status_words(status) : NULL;
	}
	ki_bytes_fini(&bytes);
	kiln_key_free(now);
	kiln_key_free(key);
	return why;
}

/* ---- Running ----------------------------------------------------------------- */

struct build {
	struct wrap *wrap;
	struct ki_wrap_sets *sets; /* that were found before */
	struct ki_bytes list;	   /* out: of all, if it was kept */
};

static void run(struct build *build)
{
	struct wrap *wrap = build->wrap;
	struct ki_wrap_paths paths = { 0 };
	uint64_t begun = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	enum kiln_counter counter;
	const char *why = NULL;

	if (ki_wrap_run(&wrap->command, &wrap->result, &paths, &counter,
			&why)) {
		kiln_count(wrap->kiln, counter, 1);
		tell(wrap, "not cached", why);
		wrap->is_refused = 1;
		ki_wrap_paths_fini(&paths);
		return;
	}
	wrap->has_run = 1;
	if (why)
		kiln_count(wrap->kiln, counter, 1);
	else
		why = keep(wrap, &paths,
			   ki_sys_posix.monotonic_ns(&ki_sys_posix) - begun);
	tell(wrap, why ? "not kept" : "compiled and kept", why);
	if (!why)
		put_paths(wrap, build->sets, &paths, &build->list);
	ki_wrap_paths_fini(&paths);
}

/* What to call it, when there is nothing to hand out: others look again. */
static enum kiln_build_kind kind_of(const struct wrap *wrap)
{
	return wrap->has_run && wrap->result.wait_status ? KILN_BUILD_SPURIOUS
							 : KILN_BUILD_UNCACHED;
}

/*
 * The store's lock on the command's key has others of the same command wait.  The
 * list is what this makes; the result goes to the store by a key that is known
 * only now.  Called again after a run, it has nothing to say.
 */
static void build_list(const struct kiln_key *key, void *arg,
		       struct kiln_build_result *out_result)
{
	struct build *build = arg;

	(void)key;
	if (!build->wrap->has_run && !build->wrap->is_refused)
		run(build);
	out_result->kind = kind_of(build->wrap);
	if (!build->list.size || build->list.failed)
		return;
	if (!kiln_blob_copy(build->list.data, build->list.size,
			    &out_result->blob)) {
		out_result->kind = KILN_BUILD_OK;
		out_result->metadata = describe(build->wrap, 0, 1);
	}
	/* The list is good, what it leads to is a failure. */
	if (out_result->kind == KILN_BUILD_OK &&
	    build->wrap->result.wait_status)
		kiln_count(build->wrap->kiln, KILN_COUNT_BUILD_FAILURES, 1);
}

/* Only one of those that have found the same list of no use compiles. */
static void build_result(const struct kiln_key *key, void *arg,
			 struct kiln_build_result *out_result)
{
	struct build *build = arg;

	(void)key;
	if (!build->wrap->has_run && !build->wrap->is_refused)
		run(build);
	out_result->kind = kind_of(build->wrap);
}

/* ---- Looking up -------------------------------------------------------------- */

/* 1: it is the answer.  What cannot be read is removed, so that it is made anew. */
static int replay(struct wrap *wrap, const struct kiln_key *key,
		  struct kiln_blob *blob)
{
	struct ki_wrap_result result;
	int err = ki_wrap_decode(&wrap->command, kiln_blob_data(blob),
				 kiln_blob_size(blob), &result);

	if (!err)
		err = ki_wrap_replay(&result);
	if (!err) {
		tell(wrap, "from the store", NULL);
		ki_wrap_say(&result);
		wrap->result.wait_status = result.wait_status;
	} else if (err != -EINVAL || kiln_remove(wrap->kiln, key) < 0) {
		tell(wrap, "not used",
		     err == -EINVAL ? "the entry is none"
				    : "an output cannot be written");
		wrap->is_refused = 1;
	}
	ki_wrap_result_fini(&result);
	return !err;
}

static int look_up(struct wrap *wrap, const struct ki_wrap_paths *paths)
{
	struct kiln_key *key = result_key(wrap, paths);
	struct kiln_blob *blob = NULL;
	int is_done = 0;

	if (key && !kiln_get(wrap->kiln, key, &blob))
		is_done = replay(wrap, key, blob);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	return is_done;
}

static int look_up_all(struct wrap *wrap, const struct ki_wrap_sets *sets)
{
	int is_done = 0;
	size_t i;

	for (i = 0; i < sets->n && !is_done && !wrap->is_refused; i++)
		is_done = look_up(wrap, &sets->sets[i]);
	return is_done;
}

/*
 * The lists of the command; whoever finds none compiles, alone of all that ask for
 * the same.  A list that cannot be read is removed, and made anew.
 */
static void find_sets(struct build *build)
{
	struct wrap *wrap = build->wrap;
	struct kiln_build_result result;
	int i, is_bad = 1;

	for (i = 0; i < 2 && is_bad; i++) {
		kiln_build_result_init(&result);
		is_bad = !kiln_get_or_build(wrap->kiln, wrap->key, build_list,
					    build, &result) &&
			 !wrap->has_run &&
			 ki_wrap_sets_decode(kiln_blob_data(result.blob),
					     kiln_blob_size(result.blob),
					     build->sets);
		if (is_bad) {
			ki_wrap_sets_fini(build->sets);
			(void)kiln_remove(wrap->kiln, wrap->key);
		}
		kiln_build_result_fini(&result);
	}
}

/* What the lists name has changed: their first has a key that stands for all, on
   which those wait that would compile the same. */
static int build_anew(struct build *build)
{
	struct wrap *wrap = build->wrap;
	struct kiln_build_result result;
	struct kiln_key *key =
		build->sets->n ? result_key(wrap, &build->sets->sets[0]) : NULL;
	int is_done = 0;

	kiln_build_result_init(&result);
	if (key &&
	    !kiln_get_or_build(wrap->kiln, key, build_result, build, &result) &&
	    !wrap->has_run)
		is_done = replay(wrap, key, result.blob);
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return is_done;
}

/* 1: the compiler has run, or its result is there. */
static int answer(struct wrap *wrap)
{
	struct ki_wrap_sets sets = { 0 };
	struct build build = { .wrap = wrap, .sets = &sets };
	int is_done;

	ki_bytes_init(&build.list);
	find_sets(&build);
	is_done = !wrap->has_run && look_up_all(wrap, &sets);
	if (!is_done && !wrap->has_run && !wrap->is_refused)
		is_done = build_anew(&build);
	if (wrap->has_run)
		ki_wrap_say(&wrap->result);
	ki_bytes_fini(&build.list);
	ki_wrap_sets_fini(&sets);
	return is_done || wrap->has_run;
}

/* ---- The verb ----------------------------------------------------------------- */

static enum kiln_status open_kiln(struct wrap *wrap, struct kiln_config *config)
{
	struct kiln_options options;
	enum kiln_status status;

	kiln_options_init(&options);
	kiln_config_options(config, &options);
	options.flags |= KILN_OPEN_NO_MEMORY;
	options.application = wrap->command.compiler;
	status = kiln_open(&options, &wrap->kiln);
	return status ? status : kiln_store_status(wrap->kiln);
}

/* It is counted, too, if there is a store. */
static int refuse(struct wrap *wrap, struct kiln_config *config,
		  const char *why)
{
	tell(wrap, "not cached", why);
	if (!open_kiln(wrap, config))
		kiln_count(wrap->kiln, KILN_COUNT_MISS_UNSUPPORTED, 1);
	return -1;
}

/* Whether caching is on and this is something to be cached. */
static int prepare(struct wrap *wrap, const struct ki_command *command,
		   struct kiln_config *config)
{
	const char *url = command->values[KI_OPTION_STORE], *why;
	enum kiln_status status;

	if (kiln_config_number(config, KILN_SET_DISABLE))
		return -1;
	if (url && ki_store_use(config, url))
		return -1;
	wrap->is_merged = ki_wrap_is_merged();
	if (wrap->is_merged < 0) {
		/* A file of the store would take its place. */
		tell(wrap, "not cached", "a standard stream is closed");
		return -1;
	}
	if (ki_wrap_parse(&wrap->command, command->arguments, &why))
		return refuse(wrap, config, why);
	if (getenv("LD_DEBUG") || getenv("LD_DEBUG_OUTPUT"))
		return refuse(wrap, config,
			      "its loader is asked for something");
	if (!ki_wrap_is_replaceable(&wrap->command))
		return refuse(wrap, config, "where its output goes");
	wrap->key = command_key(wrap);
	if (!wrap->key)
		return refuse(wrap, config, "an input cannot be read");
	status = open_kiln(wrap, config);
	if (status)
		tell(wrap, "without cache", ki_status_words(status));
	return status ? -1 : 0;
}

static int become(char **argv)
{
	int err;

	execvp(argv[0], argv);
	err = errno;
	ki_complain("cannot run '%s': %s", argv[0], strerror(err));
	return err == ENOENT ? KI_EXIT_RUN_NOT_FOUND
			     : KI_EXIT_RUN_NOT_EXECUTABLE;
}

int ki_verb_wrap(const struct ki_command *command)
{
	struct wrap wrap = { .is_verbose =
				     ki_given(command, KI_OPTION_VERBOSE) };
	struct kiln_config *config = NULL;
	char message[1024] = "out of memory";
	int is_done = 0, wait_status;

	if (kiln_config_load(&config, message, sizeof(message)))
		ki_complain("running without cache: %s", message);
	else if (!prepare(&wrap, command, config))
		is_done = answer(&wrap);
	kiln_close(wrap.kiln);
	kiln_key_free(wrap.key);
	ki_wrap_command_fini(&wrap.command);
	kiln_config_free(config);
	wait_status = wrap.result.wait_status;
	ki_wrap_result_fini(&wrap.result);
	if (!is_done)
		return become(command->arguments);
	ki_parent_end(wait_status);
}
