/* SPDX-License-Identifier: MIT */

/*
 * Every verb on every kind of store: where the disk is full, where nobody may
 * write, and beside eight who do.  A verb without a row fails the first test.
 *
 * Rows of verbs that look run at the same time; those of verbs that change
 * something follow one after another: what others may evict is removed first.
 */

#include "testing.h"
#include "harness/harness.h"

#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include <kiln/pack.h>

#include "base/hash.h"
#include "options.h"

static const char *program;

/* ---- The table ------------------------------------------------------------- */

#define ARGUMENTS_MAX 6

/* Kinds of stores. */
#define LOG   (1u << 0)
#define FILES (1u << 1)
#define NEO   (1u << 2)
#define SYCL  (1u << 3)
#define PACK  (1u << 4)
#define OWN   (LOG | FILES)
#define ALL   (OWN | NEO | SYCL | PACK)

static const struct kind {
	unsigned bit;
	const char *name;
} kinds[] = {
	{ LOG, "log" },	  { FILES, "file" }, { NEO, "neo" },
	{ SYCL, "sycl" }, { PACK, "pack" },
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* What an argument stands for that is one of these. */
#define A_KEY	"@key"
#define ANOTHER "@another"
#define A_PACK	"@pack"
#define A_FILE	"@file" /* beside the store */

struct row {
	const char *verb;
	const char *arguments[ARGUMENTS_MAX];
	unsigned kinds;
	int changes;
	int full, read_only; /* exit status there; 0 elsewhere */
};

/* Any will do: it is about the machine. */
#define ANY (-1)

static const struct row rows[] = {
	{ "ls", { "--json", "--long", "--all" }, ALL, 0, 0, 0 },
	{ "show", { "--json", A_KEY }, ALL, 0, 0, 0 },
	{ "extract", { A_KEY }, ALL, 0, 0, 0 },
	{ "extract", { A_KEY, "-o", A_FILE }, ALL, 1, 1, 1 },
	{ "why", { "--json" }, OWN, 0, 0, 0 },
	{ "why", { "--json", A_KEY }, ALL, 0, 0, 0 },
	{ "why", { "--json", A_KEY, ANOTHER }, ALL, 0, 0, 0 },
	{ "stats", { "--json" }, ALL, 0, 0, 0 },
	{ "stats", { "--prometheus" }, ALL, 0, 0, 0 },
	{ "report", { "-" }, ALL, 0, 0, 0 },
	{ "report", { A_FILE }, LOG, 1, 1, 1 },
	{ "top", { "--json" }, LOG, 0, 0, 0 },
	{ "verify", { "--json" }, ALL, 0, 0, 0 },
	{ "wait", { "--json" }, LOG, 0, 0, 0 },
	{ "doctor", { "--json" }, LOG, 0, ANY, ANY },
	{ "config", { "--json" }, LOG, 0, 0, 0 },
	{ "config", { "--json", "--store", "@store" }, ALL, 0, 0, 0 },
	{ "key", { "--json", "ls" }, LOG, 0, 0, 0 },
	{ "key", { "--json", "new", "me" }, LOG, 1, 1, 1 },
	{ "rm", { "--json", ANOTHER, ANOTHER }, OWN | NEO | SYCL, 1, 0, 5 },
	{ "run", { "--", "/bin/true" }, OWN | NEO | SYCL, 1, 0, 0 },
	{ "wrap", { "--", "/bin/true" }, OWN | NEO | SYCL, 1, 0, 0 },
	{ "export", { "--json", A_FILE }, ALL, 1, 1, 1 },
	/* On a full disk one lives on its own room, the other has none. */
	{ "import", { "--json", "--trust-unsigned", A_PACK }, LOG, 1, 0, 5 },
	{ "import", { "--json", "--trust-unsigned", A_PACK }, FILES, 1, 5, 5 },
	{ "rebuild", { "--json" }, OWN, 1, 0, 0 },
	{ "stats", { "--json", "--zero" }, OWN, 1, 0, 5 },
	{ "config", { "--json", "--limit", "3M" }, LOG, 1, 0, 5 },
	{ "verify", { "--json", "--accounting" }, OWN, 1, 0, 5 },
	{ "verify", { "--json", "--repair" }, OWN | NEO | SYCL, 1, 0, 5 },
	{ "gc", { "--json" }, OWN | NEO | SYCL, 1, 0, 5 },
	{ "gc", { "--json", "--max-size", "2M" }, OWN | NEO | SYCL, 1, 0, 5 },
	{ "clear", { "--json" }, OWN | NEO | SYCL, 1, 0, 5 },
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void every_verb_has_a_row(void **state)
{
	const struct ki_verb *verb;
	size_t i;

	for (verb = ki_verbs; verb->name; verb++) {
		for (i = 0; i < N_ROWS && strcmp(rows[i].verb, verb->name); i++)
			;
		if (i == N_ROWS)
			fail_msg("kiln %s has no row", verb->name);
	}
}

static struct ended ask_help(const char *verb)
{
	const struct spawn spawn = { .program = program,
				     .arguments = { verb ? verb : "--help",
						    verb ? "--help" : NULL } };
	struct ended ended = spawn_run(&spawn);

	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.err, "");
	for (const char *line = ended.out; *line;
	     line += strcspn(line, "\n") + 1)
		assert_true(strcspn(line, "\n") < 80);
	return ended;
}

static void every_verb_has_a_help(void **state)
{
	struct ended all = ask_help(NULL);

	for (const struct ki_verb *verb = ki_verbs; verb->name; verb++) {
		struct ended ended = ask_help(verb->name);

		assert_memory_equal(ended.out, "usage: kiln ", 12);
		assert_non_null(strstr(ended.out, verb->summary));
		assert_non_null(strstr(ended.out, "--help"));
		assert_non_null(strstr(all.out, verb->summary));
		ended_free(&ended);
	}
	ended_free(&all);
}

/* ---- Stores ------------------------------------------------------------------ */

#define BOUND	  ((uint64_t)4 << 20)
#define N_ENTRIES 20
/* So large that a store has several files: on a full disk it gives some. */
#define VALUE_BYTES 40000

struct place {
	const struct kind *kind;
	char *directory; /* what the store and everything else is in */
	char *store;
	char *pack; /* elsewhere */
};

static struct kiln_key *key_of(uint32_t number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "kind", "opencl build 1");
	kiln_key_add(key, "number", &number, sizeof(number));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static struct kiln_metadata *metadata_of(uint32_t number)
{
	struct kiln_metadata *metadata = kiln_metadata_new();

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 1790000000 + number);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 5000000);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 "/usr/bin/app");
	return metadata;
}

static enum kiln_status open_store(const char *store, struct kiln **out_kiln)
{
	struct kiln_options options;

	kiln_options_init(&options);
	options.store_url = store;
	options.store_bytes_max = BOUND;
	return kiln_open(&options, out_kiln);
}

static enum kiln_status put(struct kiln *kiln, uint32_t number, size_t size)
{
	static char value[VALUE_BYTES];
	struct kiln_metadata *metadata = metadata_of(number);
	struct kiln_key *key = key_of(number);
	enum kiln_status status;

	memset(value, (int)(number % 250) + 1, size);
	status = kiln_put(kiln, key, value, size, metadata, 0);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
	return status;
}

static void fill_store(const char *store)
{
	struct kiln *kiln;

	assert_int_equal(open_store(store, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	for (uint32_t i = 0; i < N_ENTRIES; i++)
		assert_int_equal(put(kiln, i, VALUE_BYTES), KILN_OK);
	kiln_count(kiln, KILN_COUNT_MISSES, N_ENTRIES);
	kiln_close(kiln);
}

static void write_pack(const char *path, uint32_t from)
{
	struct kiln_pack_writer_options options;
	static const char value[VALUE_BYTES];
	struct kiln_pack_writer *writer;
	struct kiln_pack_report report;

	kiln_pack_writer_options_init(&options);
	assert_int_equal(kiln_pack_create(path, &options, &writer), KILN_OK);
	for (uint32_t i = 0; i < N_ENTRIES; i++) {
		struct kiln_key *key = key_of(from + i);

		assert_int_equal(kiln_pack_add(writer, key, NULL, 0, value,
					       sizeof(value)),
				 KILN_OK);
		kiln_key_free(key);
	}
	assert_int_equal(kiln_pack_finish(writer, &report), KILN_OK);
}

static void place_init(struct place *place, const struct kind *kind,
		       const char *directory, const char *pack)
{
	char *path = harness_path(directory, "store");

	place->kind = kind;
	place->directory = strdup(directory);
	place->pack = strdup(pack);
	assert_true(asprintf(&place->store, "%s:%s", kind->name, path) > 0);
	if (kind->bit == PACK)
		write_pack(path, 0);
	else
		fill_store(place->store);
	free(path);
}

static void place_fini(struct place *place)
{
	free(place->directory);
	free(place->store);
	free(place->pack);
}

/* ---- Running ------------------------------------------------------------------ */

struct texts {
	char key[33], another[33];
	char file[600];
	char store[700], home[600], settings[600];
};

static void key_text(uint32_t number, char out[33])
{
	struct kiln_key *key = key_of(number);

	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, out);
	kiln_key_free(key);
}

static const char *argument_of(const struct place *place, struct texts *texts,
			       const char *text)
{
	if (!text || *text != '@')
		return text;
	if (!strcmp(text, A_KEY))
		return texts->key;
	if (!strcmp(text, ANOTHER))
		return texts->another;
	if (!strcmp(text, A_PACK))
		return place->pack;
	return !strcmp(text, A_FILE) ? texts->file : place->store;
}

static struct spawned start(const struct row *row, const struct place *place)
{
	static int n_files;
	struct spawn spawn = { .program = program };
	struct texts texts;
	int n = 0;

	key_text(0, texts.key);
	key_text(1, texts.another);
	snprintf(texts.file, sizeof(texts.file), "%s/file.%d", place->directory,
		 n_files++);
	snprintf(texts.store, sizeof(texts.store), "KILN_STORE=%s",
		 place->store);
	snprintf(texts.home, sizeof(texts.home), "HOME=%s", place->directory);
	snprintf(texts.settings, sizeof(texts.settings),
		 "XDG_CONFIG_HOME=%s/settings", place->directory);
	spawn.arguments[n++] = row->verb;
	for (int i = 0; i < ARGUMENTS_MAX && row->arguments[i]; i++)
		spawn.arguments[n++] =
			argument_of(place, &texts, row->arguments[i]);
	spawn.variables[0] = texts.store;
	spawn.variables[1] = texts.home;
	spawn.variables[2] = texts.settings;
	spawn.variables[3] = "KILN_PACKS";
	return spawn_start(&spawn);
}

static int is_json(const struct row *row)
{
	return row->arguments[0] && !strcmp(row->arguments[0], "--json");
}

/* 0, or why it is not as it should be. */
static const char *complaint(const struct row *row, int wanted,
			     const struct ended *ended)
{
	const int status = status_of(ended);
	json_t *json;
	int is_right;

	if (status != wanted && (wanted != ANY || status > 5))
		return "the exit status is another";
	if (status && wanted != ANY && memcmp(ended->err, "kiln: ", 6))
		return "it does not say why";
	if (status || !is_json(row))
		return NULL;
	json = json_loads(ended->out, 0, NULL);
	is_right = json_integer_value(json_object_get(json, "schema")) == 1;
	json_decref(json);
	return is_right ? NULL : "what it prints is no JSON of ours";
}

/* Whether it is; ends what was started. */
static int is_as_wanted(const struct row *row, const struct place *place,
			int wanted, struct spawned *spawned)
{
	struct ended ended = spawn_finish(spawned);
	const char *what = complaint(row, wanted, &ended);

	if (what)
		print_message("# kiln %s %s %s on %s: %s: status %d, wanted "
			      "%d\n# %.300s\n# %s\n",
			      row->verb,
			      row->arguments[0] ? row->arguments[0] : "",
			      row->arguments[1] ? row->arguments[1] : "",
			      place->kind->name, what, status_of(&ended),
			      wanted, ended.out, ended.err);
	ended_free(&ended);
	return !what;
}

typedef int wanted_fn(const struct row *row);

static int as_ever(const struct row *row)
{
	return row->full == ANY ? ANY : 0;
}

static int on_a_full_disk(const struct row *row)
{
	return row->full;
}

static int where_nobody_writes(const struct row *row)
{
	return row->read_only;
}

/* `between` is called before each row that changes something, and once before the
   others; may be NULL.  Returns how many were not as wanted. */
static unsigned run_all(const struct place *place, wanted_fn *wanted,
			void (*between)(void *arg), void *arg)
{
	struct spawned looking[N_ROWS];
	unsigned n_wrong = 0;

	if (between)
		between(arg);
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].kinds & place->kind->bit && !rows[i].changes)
			looking[i] = start(&rows[i], place);
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].kinds & place->kind->bit && !rows[i].changes)
			n_wrong += !is_as_wanted(&rows[i], place,
						 wanted(&rows[i]), &looking[i]);
	for (size_t i = 0; i < N_ROWS; i++) {
		struct spawned changing;

		if (!(rows[i].kinds & place->kind->bit) || !rows[i].changes)
			continue;
		if (between)
			between(arg);
		changing = start(&rows[i], place);
		n_wrong += !is_as_wanted(&rows[i], place, wanted(&rows[i]),
					 &changing);
	}
	return n_wrong;
}

/* ---- Disks --------------------------------------------------------------------- */

static char *disk; /* where they are mounted */
static char *pack; /* one to be imported */

static int may_mount(void)
{
	return !unshare(CLONE_NEWNS) &&
	       !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static void fill_disk(void *arg)
{
	static char bytes[1 << 16];
	char *path = harness_path(disk, "rest");
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (size_t size = sizeof(bytes); size;)
		if (write(fd, bytes, size) != (ssize_t)size)
			size /= 2;
	close(fd);
	free(path);
}

static unsigned run_on_disk(const struct kind *kind, int is_full)
{
	struct place place;
	unsigned n_wrong;

	assert_int_equal(mount("kiln", disk, "tmpfs", 0, "size=12m,mode=0700"),
			 0);
	place_init(&place, kind, disk, pack);
	if (!is_full)
		assert_int_equal(
			mount(NULL, disk, NULL, MS_REMOUNT | MS_RDONLY, NULL),
			0);
	n_wrong =
		run_all(&place, is_full ? on_a_full_disk : where_nobody_writes,
			is_full ? fill_disk : NULL, NULL);
	assert_int_equal(umount2(disk, MNT_DETACH), 0);
	place_fini(&place);
	return n_wrong;
}

static unsigned run_on_disks(int is_full)
{
	unsigned n_wrong = 0;

	for (size_t i = 0; i < N_KINDS; i++)
		n_wrong += run_on_disk(&kinds[i], is_full);
	return n_wrong;
}

static int is_mounting;

/* S29 */
static void a_full_disk_is_no_hindrance_to_looking_and_removing(void **state)
{
	if (!is_mounting)
		HARNESS_LEAVE_OUT("nothing may be mounted here");
	assert_int_equal(run_on_disks(1), 0);
}

/* S30 */
static void where_nobody_writes_there_is_looking(void **state)
{
	if (!is_mounting)
		HARNESS_LEAVE_OUT("nothing may be mounted here");
	assert_int_equal(run_on_disks(0), 0);
}

/* What `kiln doctor` says of room: "bad", "note", or NULL. */
static char *doctor_on_room(const char *store)
{
	struct spawn spawn = { .program = program };
	struct ended ended;
	json_t *json, *check;
	char variable[700], *result = NULL;
	size_t i;

	snprintf(variable, sizeof(variable), "KILN_STORE=%s", store);
	spawn.arguments[0] = "doctor";
	spawn.arguments[1] = "--json";
	spawn.variables[0] = variable;
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	assert_non_null(json);
	json_array_foreach(json_object_get(json, "checks"), i, check)
	{
		const char *name =
			json_string_value(json_object_get(check, "name"));

		if (!strcmp(name, "room"))
			result = strdup(json_string_value(
				json_object_get(check, "result")));
	}
	json_decref(json);
	ended_free(&ended);
	return result;
}

static void assert_doctor_on_room(const char *store, const char *wanted)
{
	char *result = doctor_on_room(store);

	assert_string_equal(result ? result : "nothing", wanted);
	free(result);
}

static void doctor_says_that_a_disk_is_full(void **state)
{
	struct place place;
	char *none;

	if (!is_mounting)
		HARNESS_LEAVE_OUT("nothing may be mounted here");
	assert_int_equal(mount("kiln", disk, "tmpfs", 0, "size=4m,mode=0700"),
			 0);
	assert_true(asprintf(&none, "log:%s/none", disk) > 0);
	assert_doctor_on_room(none, "bad");
	place_init(&place, &kinds[0], disk, pack);
	assert_doctor_on_room(place.store, "nothing");
	fill_disk(NULL);
	assert_doctor_on_room(place.store, "note");
	assert_int_equal(umount2(disk, MNT_DETACH), 0);
	place_fini(&place);
	free(none);
}

/* ---- Eight writers ---------------------------------------------------------------- */

#define N_WRITERS 8
#define PUTS	  10 /* of each beside each row */

/* Shared among processes. */
struct writing {
	sem_t go; /* a row begins: for each writer one */
	int is_over;
	char store[700];
};

static int write_on(const struct writing *writing, sem_t *go, uint32_t writer)
{
	struct kiln *kiln;
	uint32_t n = 0;

	if (open_store(writing->store, &kiln))
		return 1;
	while (!sem_wait(go) &&
	       !__atomic_load_n(&writing->is_over, __ATOMIC_ACQUIRE))
		for (uint32_t i = 0; i < PUTS; i++) {
			(void)put(kiln, 1000 + writer * 100000 + n++, 400);
			kiln_count(kiln, KILN_COUNT_MISSES, 1);
		}
	kiln_close(kiln);
	return 0;
}

static void let_write(void *arg)
{
	struct writing *writing = arg;

	for (int i = 0; i < N_WRITERS; i++)
		sem_post(&writing->go);
}

struct crowd {
	struct writing *writing;
	const struct place *place;
};

static int write_or_look(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct writing *writing = crowd->writing;
	unsigned n_wrong;

	if (index < N_WRITERS)
		return write_on(writing, &writing->go, index);
	n_wrong = run_all(crowd->place, as_ever, let_write, writing);
	__atomic_store_n(&writing->is_over, 1, __ATOMIC_RELEASE);
	let_write(writing);
	return n_wrong != 0;
}

/* S61 */
static void eight_writers_are_no_hindrance(void **state)
{
	struct writing *writing =
		mmap(NULL, sizeof(*writing), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(writing != MAP_FAILED);
	for (size_t i = 0; i < N_KINDS; i++) {
		char *directory = harness_directory();
		struct crowd crowd = { writing, NULL };
		struct place place;

		place_init(&place, &kinds[i], directory, pack);
		crowd.place = &place;
		writing->is_over = 0;
		snprintf(writing->store, sizeof(writing->store), "%s",
			 place.store);
		assert_int_equal(sem_init(&writing->go, 1, 0), 0);
		assert_int_equal(harness_processes(N_WRITERS + 1, write_or_look,
						   &crowd, HARNESS_HANG_S),
				 0);
		sem_destroy(&writing->go);
		place_fini(&place);
		free(directory);
	}
	munmap(writing, sizeof(*writing));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_verb_has_a_row),
		cmocka_unit_test(every_verb_has_a_help),
		cmocka_unit_test(
			a_full_disk_is_no_hindrance_to_looking_and_removing),
		cmocka_unit_test(where_nobody_writes_there_is_looking),
		cmocka_unit_test(doctor_says_that_a_disk_is_full),
		cmocka_unit_test(eight_writers_are_no_hindrance),
	};
	char *beside;
	int failed;

	if (argc < 2)
		return 1;
	program = argv[1];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	disk = harness_directory();
	beside = harness_directory();
	pack = harness_path(beside, "pack");
	write_pack(pack, 500);
	is_mounting = may_mount();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(pack);
	free(beside);
	free(disk);
	return failed;
}
