/* SPDX-License-Identifier: MIT */

/* kiln top: what its frames say, and how it treats a terminal. */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "live.h"

static const char *program;

static void use(const char *directory, uint64_t hits, uint64_t misses)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[600];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.application = "/usr/bin/hos\033tile-and-rather-long-name";
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	kiln_count(kiln, KILN_COUNT_HITS_STORE, hits);
	kiln_count(kiln, KILN_COUNT_MISSES, misses);
	kiln_count(kiln, KILN_COUNT_MISS_OPTIONS, misses);
	kiln_close(kiln);
}

static void put(const char *directory)
{
	struct kiln_key *key = kiln_key_new();
	struct kiln_options options;
	struct kiln *kiln;
	char url[600];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	kiln_key_add_string(key, "name", "biggest");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(kiln_put(kiln, key, "value", 5, NULL, 0), KILN_OK);
	kiln_key_free(key);
	kiln_close(kiln);
}

/* ---- Frames -------------------------------------------------------------------- */

struct scene {
	char *directory;
	char url[600];
	struct ki_settings settings;
	struct ki_live live;
	char *text; /* the last frame */
};

static struct scene *scene_new(void)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	scene->directory = harness_directory();
	snprintf(scene->url, sizeof(scene->url), "log:%s/store",
		 scene->directory);
	kiln_options_init(&scene->settings.options);
	scene->settings.options.store_url = scene->url;
	snprintf(scene->settings.directory, sizeof(scene->settings.directory),
		 "%s/store", scene->directory);
	assert_int_equal(ki_live_init(&scene->live, &scene->settings), 0);
	return scene;
}

static void scene_free(struct scene *scene)
{
	ki_live_fini(&scene->live);
	free(scene->text);
	free(scene->directory);
	free(scene);
}

static const char *frame(struct scene *scene, int columns, int n_lines)
{
	struct ki_bytes out;
	size_t size;

	ki_bytes_init(&out);
	ki_live_frame(&scene->live, &out, columns, n_lines);
	ki_bytes_add_u8(&out, 0);
	free(scene->text);
	scene->text = (char *)ki_bytes_take(&out, &size);
	assert_non_null(scene->text);
	return scene->text;
}

static void look(struct scene *scene)
{
	scene->live.survey_due_ns = 0;
	assert_int_equal(ki_live_look(&scene->live), 0);
	assert_int_equal(ki_live_survey(&scene->live), 0);
}

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void differences_are_told(void **state)
{
	struct scene *scene = scene_new();
	uint64_t total[KILN_N_COUNTERS];

	look(scene);
	expect(frame(scene, 80, 24), "nothing is cached there yet");
	use(scene->settings.directory, 8, 2);
	look(scene); /* a store that came into being since */
	expect(frame(scene, 80, 24), "here  8 of 10 hit (80.0 %)");
	ki_live_reset(&scene->live);
	expect(frame(scene, 80, 24), "here  0 of 0 hit (0.0 %)");
	use(scene->settings.directory, 1, 3);
	put(scene->settings.directory);
	look(scene);
	expect(frame(scene, 80, 24), "here  1 of 4 hit (25.0 %)");
	expect(scene->text, "       3         5  miss: changed options\n");
	expect(scene->text, "       1        3       0 s  hos?tile");
	expect(scene->text, "of 1.00 GiB, 1 entries");
	assert_true(ki_live_last(&scene->live, total) > 0);
	assert_int_equal(total[KILN_COUNT_MISSES], 3);
	scene_free(scene);
}

static void a_store_that_is_removed_is_waited_for(void **state)
{
	struct scene *scene = scene_new();

	use(scene->settings.directory, 8, 2);
	look(scene);
	harness_remove(scene->settings.directory);
	for (unsigned i = 0; i < 2; i++)
		look(scene);
	expect(frame(scene, 80, 24), "nothing is cached there yet");
	use(scene->settings.directory, 1, 1);
	look(scene);
	expect(frame(scene, 80, 24), "1 of 2 hit");
	scene_free(scene);
}

/* S61 */
static void frames_fit(void **state)
{
	struct scene *scene = scene_new();

	use(scene->settings.directory, 123456789, 987654321);
	put(scene->settings.directory);
	look(scene);
	for (int columns = 1; columns <= 120; columns += 13) {
		for (int n_lines = 0; n_lines <= 30; n_lines++) {
			const char *line = frame(scene, columns, n_lines);
			int n = 0;

			assert_null(strchr(line, '\033'));
			for (const char *end; (end = strchr(line, '\n'));
			     line = end + 1, n++)
				assert_in_range(end - line, 0, columns);
			assert_true(n <= n_lines);
		}
	}
	scene_free(scene);
}

/* ---- The terminal ---------------------------------------------------------------- */

struct terminal {
	int ours;
	int its;
	struct termios before;
	struct spawned spawned;
	char text[1 << 16]; /* all that was drawn */
	size_t size;
};

static void become_terminal(void *arg)
{
	const struct terminal *terminal = arg;

	setsid();
	ioctl(terminal->its, TIOCSCTTY, 0);
	dup2(terminal->its, STDIN_FILENO);
	dup2(terminal->its, STDOUT_FILENO);
}

static struct terminal *start(const char *directory, const char *term,
			      unsigned short columns)
{
	static char setting[600], kind[64];
	struct winsize window = { .ws_row = 12, .ws_col = columns };
	struct terminal *terminal = calloc(1, sizeof(*terminal));
	struct spawn spawn = { .program = program, .arguments = { "top" } };

	assert_non_null(terminal);
	assert_int_equal(
		openpty(&terminal->ours, &terminal->its, NULL, NULL, &window),
		0);
	tcgetattr(terminal->its, &terminal->before);
	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	snprintf(kind, sizeof(kind), "TERM=%s", term);
	spawn.variables[0] = setting;
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[2] = kind;
	spawn.variables[3] = "COLUMNS";
	spawn.variables[4] = "LINES";
	spawn.before = become_terminal;
	spawn.arg = terminal;
	terminal->spawned = spawn_start(&spawn);
	return terminal;
}

static void read_more(struct terminal *terminal)
{
	struct pollfd polled = { .fd = terminal->ours, .events = POLLIN };
	ssize_t n;

	if (poll(&polled, 1, HARNESS_HANG_S * 1000) <= 0)
		fail_msg("nothing more is drawn than: %s", terminal->text);
	n = read(terminal->ours, terminal->text + terminal->size,
		 sizeof(terminal->text) - 1 - terminal->size);
	if (n <= 0)
		fail_msg("it ended with: %s", terminal->text);
	terminal->size += (size_t)n;
}

static void wait_for(struct terminal *terminal, const char *part)
{
	while (!strstr(terminal->text, part))
		read_more(terminal);
	terminal->size = 0; /* what comes next is new */
	memset(terminal->text, 0, sizeof(terminal->text));
}

static void end(struct terminal *terminal, int status)
{
	struct ended ended = spawn_finish(&terminal->spawned);
	struct termios after;

	assert_int_equal(status_of(&ended), status);
	tcgetattr(terminal->its, &after);
	assert_memory_equal(&after.c_lflag, &terminal->before.c_lflag,
			    sizeof(after.c_lflag));
	ended_free(&ended);
	close(terminal->its);
	close(terminal->ours);
	free(terminal);
}

static void say(struct terminal *terminal, const char *keys)
{
	assert_int_equal(write(terminal->ours, keys, strlen(keys)),
			 strlen(keys));
}

static void it_draws_listens_and_leaves_the_terminal_as_it_was(void **state)
{
	char *directory = harness_directory();
	struct terminal *terminal;

	use(directory, 8, 2);
	terminal = start(directory, "xterm", 80);
	wait_for(terminal, "q quit");
	say(terminal, "p");
	wait_for(terminal, "paused");
	say(terminal, "p");
	use(directory, 1, 1);
	wait_for(terminal, "50.0 %");
	say(terminal, "q");
	wait_for(terminal, "\033[?1049l"); /* the other screen is back */
	end(terminal, 0);
	free(directory);
}

static void signals_make_it_leave(void **state)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	char *directory = harness_directory();

	for (size_t i = 0; i < 3; i++) {
		struct terminal *terminal = start(directory, "xterm", 40);

		wait_for(terminal, "q quit");
		kill(terminal->spawned.pid, signals[i]);
		wait_for(terminal, "\033[?1049l");
		end(terminal, 0);
	}
	free(directory);
}

/* S61 */
static void where_nothing_can_be_drawn_it_says_so(void **state)
{
	static const char *const kinds[] = { "no-such-terminal", "dumb", "" };
	struct spawn spawn = { .program = program, .arguments = { "top" } };
	char *directory = harness_directory();
	struct ended ended = spawn_run(&spawn);

	assert_int_equal(status_of(&ended), 5);
	assert_non_null(strstr(ended.err, "there is none"));
	assert_string_equal(ended.out, "");
	ended_free(&ended);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct terminal *terminal = start(directory, kinds[i], 80);
		char expected[64];

		snprintf(expected, sizeof(expected), "(TERM=%s)", kinds[i]);
		ended = spawn_finish(&terminal->spawned);
		assert_int_equal(status_of(&ended), 5);
		assert_non_null(strstr(ended.err, expected));
		ended_free(&ended);
		close(terminal->its);
		close(terminal->ours);
		free(terminal);
	}
	free(directory);
}

static void json_tells_of_one_second(void **state)
{
	char *directory = harness_directory(), setting[600];
	struct spawn spawn = { .program = program,
			       .arguments = { "top", "--json" } };
	struct ended ended;
	json_t *json;

	use(directory, 8, 2);
	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	spawn.variables[0] = setting;
	ended = spawn_run(&spawn);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(status_of(&ended), 0);
	assert_non_null(json);
	assert_true(json_real_value(json_object_get(json, "seconds")) >= 1);
	assert_true(json_is_object(json_object_get(json, "counted")));
	assert_true(json_is_array(json_object_get(json, "biggest")));
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(differences_are_told),
		cmocka_unit_test(a_store_that_is_removed_is_waited_for),
		cmocka_unit_test(frames_fit),
		cmocka_unit_test(
			it_draws_listens_and_leaves_the_terminal_as_it_was),
		cmocka_unit_test(signals_make_it_leave),
		cmocka_unit_test(where_nothing_can_be_drawn_it_says_so),
		cmocka_unit_test(json_tells_of_one_second),
	};

	program = argc > 1 ? argv[1] : "kiln";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
