/* SPDX-License-Identifier: MIT */

/* kiln-remote as a process: where it listens, whom it serves, when it ends. */

#include "harness/harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "client_test.h"
#include "helper.h"
#include "loop.h"
#include "process_test.h"
#include "sys/sys.h"

static char *program;
static char *page_path;
static char *directory; /* of one test */
static char *path;	/* of its socket */

static int set_up(void **state)
{
	directory = harness_directory();
	path = harness_path(directory, "remote-1.sock");
	return 0;
}

static int tear_down(void **state)
{
	free(path);
	harness_remove(directory);
	free(directory);
	return 0;
}

static pid_t start(const char *const *arguments)
{
	return process_start(program, arguments, NULL);
}

static pid_t start_here(void)
{
	return process_serve(program, path, NULL);
}

/* ---- Greeting ------------------------------------------------------------ */

static void a_program_is_greeted_and_a_get_is_answered(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct answer answer;
	pid_t pid = start_here();
	int fd = client_open(path);

	client_name(name, 1);
	client_get(fd, 77, name, 10, 0);
	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.type, KI_FRAME_MISS);
	assert_int_equal(answer.frame.id, 77);
	free(answer.body);
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
}

static void what_breaks_the_rules_is_cut_off_and_others_are_served(void **state)
{
	static const struct {
		const char *what;
		int is_greeted;
		uint8_t bytes[KI_FRAME_BYTES + 24];
	} rows[] = {
		{ "a body larger than any", 1, { 0xff, 0xff, 0xff, 0x7f, 1 } },
		{ "no such type", 1, { 0, 0, 0, 0, 99 } },
		{ "type 0", 1, { 0 } },
		{ "an answer", 1, { 0, 0, 0, 0, KI_FRAME_DRAINED } },
		{ "an item", 1, { 0, 0, 0, 1, KI_FRAME_ITEM } },
		{ "a get of 3 bytes", 1, { 3, 0, 0, 0, KI_FRAME_GET } },
		{ "nothing said first", 0, { 4, 0, 0, 0, KI_FRAME_TELL } },
		{ "of another magic", 0, { 24, 0, 0, 0, KI_FRAME_HELLO } },
		{ "a second hello", 1, { 24, 0,	  0,   0,   KI_FRAME_HELLO,
					 0,  0,	  0,   0,   0,
					 0,  0,	  0,   0,   0,
					 0,  'k', 'i', 'l', 'n',
					 1,  0,	  1 } },
	};
	pid_t pid = start_here();
	int good = client_open(path);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int fd = rows[i].is_greeted ? client_open(path)
					    : client_connect(path);

		print_message("# %s\n", rows[i].what);
		assert_true(send(fd, rows[i].bytes, sizeof(rows[i].bytes),
				 MSG_NOSIGNAL) > 0);
		assert_true(client_is_cut_off(fd));
		(void)close(fd);
	}
	client_send(good, KI_FRAME_DRAIN, 5, "\1\0\0", 4);
	struct answer answer;
	assert_true(client_receive(good, &answer));
	assert_int_equal(answer.frame.type, KI_FRAME_DRAINED);
	free(answer.body);
	(void)close(good);
	assert_int_equal(process_stop(pid), 0);
}

static void versions_that_do_not_meet_part_after_the_answer(void **state)
{
	uint8_t body[KI_FRAME_HELLO_BYTES] = { 0 };
	struct answer answer;
	pid_t pid = start_here();
	int fd = client_connect(path);

	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, KI_REMOTE_VERSION + 1);
	ki_put_u16(body + 6, KI_REMOTE_VERSION + 7);
	client_send(fd, KI_FRAME_HELLO, 1, body, sizeof(body));
	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.type, KI_FRAME_HELLO);
	assert_int_equal(ki_get_u16(answer.body + 6), KI_REMOTE_VERSION);
	free(answer.body);
	assert_true(client_is_cut_off(fd));
	(void)close(fd);
	assert_int_equal(process_stop(pid), 0);
}

static void a_connection_may_end_at_any_byte(void **state)
{
	uint8_t bytes[3 * KI_FRAME_BYTES + KI_FRAME_HELLO_BYTES +
		      KI_FRAME_GET_BYTES + 64] = { 0 };
	struct ki_frame hello = { KI_FRAME_HELLO_BYTES, KI_FRAME_HELLO };
	struct ki_frame get = { KI_FRAME_GET_BYTES, KI_FRAME_GET };
	struct ki_frame put = { KI_FRAME_PUT_BYTES, KI_FRAME_PUT };
	uint8_t *at = bytes;
	pid_t pid = start_here();

	ki_frame_put(at, &hello);
	ki_put_u32(at + KI_FRAME_BYTES, KI_REMOTE_MAGIC);
	ki_put_u16(at + KI_FRAME_BYTES + 4, KI_REMOTE_VERSION);
	ki_put_u16(at + KI_FRAME_BYTES + 6, KI_REMOTE_VERSION);
	at += KI_FRAME_BYTES + KI_FRAME_HELLO_BYTES;
	ki_frame_put(at, &get);
	at += KI_FRAME_BYTES + KI_FRAME_GET_BYTES;
	ki_frame_put(at, &put);
	for (size_t size = 0; size <= sizeof(bytes); size++) {
		int fd = client_connect(path);

		assert_true(fd >= 0);
		if (size)
			(void)send(fd, bytes, size, MSG_NOSIGNAL);
		(void)close(fd);
	}
	(void)close(client_open(path));
	assert_int_equal(process_stop(pid), 0);
}

static void a_thousand_programs_are_served_at_once(void **state)
{
	enum { N = 1000 };
	struct rlimit files;
	static int fds[N];
	struct answer answer;
	uint8_t name[KI_REMOTE_NAME_BYTES];
	pid_t pid = start_here();

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	client_name(name, 1);
	for (int i = 0; i < N; i++)
		fds[i] = client_open(path);
	for (int i = 0; i < N; i++)
		client_get(fds[i], (uint64_t)i, name, 10, 0);
	for (int i = 0; i < N; i++) {
		assert_true(client_receive(fds[i], &answer));
		assert_int_equal(answer.frame.id, i);
		free(answer.body);
		(void)close(fds[i]);
	}
	assert_int_equal(process_stop(pid), 0);
}

/* ---- Who does not read ---------------------------------------------------- */

static enum kiln_status open_nothing(struct loop *loop, const char *url,
				     const char *ca_file,
				     const struct credentials *credentials,
				     struct backend **out_backend, char *why,
				     size_t why_size)
{
	return KILN_E_UNSUPPORTED;
}

/* A helper in a child that is as impatient as a test. */
static pid_t serve_impatiently(uint32_t stall_ms)
{
	struct place place;
	struct helper_options options = { .place = &place,
					  .idle_ms = 60000,
					  .memory_bytes_max = 1 << 20,
					  .open = open_nothing };
	struct helper helper;
	struct loop *loop;
	char why[512];
	pid_t pid;

	assert_int_equal(place_take(&place, path, why, sizeof(why)), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid) {
		(void)close(place.listen_fd);
		(void)close(place.lock_fd);
		return pid;
	}
	loop = loop_new();
	if (helper_begin(&helper, loop, &options, why, sizeof(why)))
		_exit(1);
	helper.stall_ms = stall_ms;
	_exit(loop_run(loop) != 0);
}

static void tell_much(int fd, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		client_send(fd, KI_FRAME_TELL, i, "\0\0\0", 4);
}

static void who_reads_no_answers_is_cut_off_and_others_are_served(void **state)
{
	enum { N = 4000 };
	pid_t pid = serve_impatiently(200);
	int mute = client_open(path), other = client_open(path);

	tell_much(mute, N);
	for (int i = 0; i < 50; i++) {
		json_t *told = client_tell(other, 0);

		json_decref(told);
	}
	process_wait_ms(600);
	assert_true(client_is_cut_off(mute));
	(void)close(mute);
	json_decref(client_tell(other, 0));
	(void)close(other);
	assert_int_equal(kill(pid, SIGKILL), 0);
	(void)process_end(pid);
}

/* All of them, in order, though no more than some are taken at a time. */
static void who_asks_much_and_reads_late_has_all_its_answers(void **state)
{
	enum { N = 800 }; /* more than the helper takes, less than blocks us */
	pid_t pid = serve_impatiently(60000);
	int fd = client_open(path);

	tell_much(fd, N);
	process_wait_ms(100);
	for (unsigned i = 0; i < N; i++) {
		struct answer answer = client_expect(fd, KI_FRAME_TOLD, i);

		free(answer.body);
	}
	(void)close(fd);
	assert_int_equal(kill(pid, SIGKILL), 0);
	(void)process_end(pid);
}

/* How long it has been silent counts from the first answer that it left. */
static void who_has_been_quiet_for_long_may_read_slowly(void **state)
{
	enum { N = 800, STALL_MS = 1000 };
	pid_t pid = serve_impatiently(STALL_MS);
	int fd = client_open(path);

	process_wait_ms(STALL_MS - 150);
	tell_much(fd, N);
	process_wait_ms(300);
	for (unsigned i = 0; i < N; i++) {
		struct answer answer = client_expect(fd, KI_FRAME_TOLD, i);

		free(answer.body);
	}
	(void)close(fd);
	assert_int_equal(kill(pid, SIGKILL), 0);
	(void)process_end(pid);
}

/* ---- Its place ----------------------------------------------------------- */

static int exists(const char *name)
{
	struct stat info;

	return !lstat(name, &info);
}

/* From the moment on that it can be found. */
static void told_to_end_it_leaves_no_name(void **state)
{
	for (int i = 0; i < 20; i++) {
		pid_t pid = start_here();

		assert_true(exists(path));
		assert_int_equal(process_stop(pid), 0);
		assert_false(exists(path));
	}
}

/* A server to put things on that takes them and never answers. */
static int listen_mutely(char *setting, size_t size)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t name_size = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&name, name_size), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &name_size),
			 0);
	snprintf(setting, size, "KILN_REMOTE=redis://127.0.0.1:%u",
		 ntohs(name.sin_port));
	return fd;
}

static void told_to_end_without_descriptors_it_does_not_fall(void **state)
{
	enum { N = 40 };
	struct rlimit few = { 24, 24 };
	struct entry entry = entry_new(1, 1000);
	char remote[64];
	const char *settings[] = { remote, "KILN_REMOTE_TRUST=transport",
				   NULL };
	int fds[N], server = listen_mutely(remote, sizeof(remote));
	pid_t pid = process_serve(program, path, settings);

	fds[0] = client_open(path);
	client_put(fds[0], &entry, 0);
	json_decref(client_tell(fds[0], 0)); /* it has taken that */
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &few, NULL), 0);
	for (int i = 1; i < N; i++)
		fds[i] = client_connect(path);
	json_decref(client_tell(fds[0], 0)); /* it has no more of them */
	assert_int_equal(kill(pid, SIGTERM), 0);
	process_wait_ms(250); /* it would look for one again each 100 ms */
	(void)kill(pid, SIGKILL);
	assert_int_not_equal(process_end(pid), 128 + SIGSEGV);
	for (int i = 0; i < N; i++)
		(void)close(fds[i]);
	(void)close(server);
	entry_fini(&entry);
}

static void there_is_one_helper_to_a_socket(void **state)
{
	const char *arguments[PROCESS_WORDS_MAX] = { "--socket", path };
	pid_t pid = start_here();

	assert_int_equal(process_end(start(arguments)), 6);
	(void)close(client_open(path));
	assert_int_equal(process_stop(pid), 0);
}

static void one_that_was_killed_is_followed_by_the_next(void **state)
{
	pid_t pid = start_here();

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(process_end(pid), 128 + SIGKILL);
	assert_true(exists(path));
	pid = start_here();
	(void)close(client_open(path));
	assert_int_equal(process_stop(pid), 0);
}

static void a_place_that_others_can_reach_is_refused(void **state)
{
	static const mode_t modes[] = { 0750, 0701, 0777 };
	const char *arguments[PROCESS_WORDS_MAX] = { "--socket", path };

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(chmod(directory, modes[i]), 0);
		assert_int_equal(process_end(start(arguments)), 5);
	}
	assert_int_equal(chmod(directory, 0700), 0);
	harness_write(path, "mine", 4);
	assert_int_equal(process_end(start(arguments)), 5);
	assert_true(exists(path));
}

static void without_its_name_it_ends_and_leaves_that_of_another(void **state)
{
	pid_t pid = start_here();

	assert_int_equal(unlink(path), 0);
	harness_write(path, "another's", 9);
	assert_int_equal(process_end(pid), 0);
	assert_true(exists(path));
}

static void it_ends_when_nobody_comes(void **state)
{
	const char *arguments[PROCESS_WORDS_MAX] = { "--socket", path, "--idle",
						     "1" };
	pid_t pid = start(arguments);
	int fd = process_connect(pid, path);

	assert_true(fd >= 0);
	client_hello(fd);
	process_wait_ms(1500);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	(void)close(fd);
	assert_int_equal(process_end(pid), 0);
	assert_false(exists(path));
}

/* Whatever user it is of: only root's would do so with its curtains drawn. */
static void it_goes_first_when_memory_is_short(void **state)
{
	pid_t pid = start_here();
	char name[64], *text;
	size_t size;

	snprintf(name, sizeof(name), "/proc/%d/oom_score_adj", pid);
	text = harness_read(name, &size);
	assert_non_null(text);
	assert_true(atoi(text) >= 500); /* a container may say more */
	free(text);
	assert_int_equal(process_stop(pid), 0);
}

/* ---- Handed over --------------------------------------------------------- */

struct handed {
	int listen_fd, lock_fd;
	char listen_text[16], lock_text[16];
};

static void make_handed(struct handed *handed)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char *lock = harness_path(directory, "remote-1.lock");

	handed->lock_fd = open(lock, O_RDWR | O_CREAT, 0600);
	free(lock);
	assert_int_equal(fcntl(handed->lock_fd, F_OFD_SETLK, &whole), 0);
	handed->listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(address.sun_path, path);
	assert_int_equal(bind(handed->listen_fd, (struct sockaddr *)&address,
			      sizeof(address)),
			 0);
	assert_int_equal(listen(handed->listen_fd, 8), 0);
	snprintf(handed->listen_text, sizeof(handed->listen_text), "%d",
		 handed->listen_fd);
	snprintf(handed->lock_text, sizeof(handed->lock_text), "%d",
		 handed->lock_fd);
}

static void close_handed(struct handed *handed)
{
	(void)close(handed->listen_fd);
	(void)close(handed->lock_fd);
}

static int pid_behind(int fd)
{
	struct answer answer;
	int pid;

	client_hello(fd);
	assert_true(client_receive(fd, &answer));
	pid = (int)ki_get_u32(answer.body + 16);
	free(answer.body);
	return pid;
}

/* The starter's end of a descriptor that nobody else has any more. */
static void what_is_handed_over_is_served_in_the_background(void **state)
{
	struct handed handed;
	const char *arguments[PROCESS_WORDS_MAX] = {
		"--socket",	    path,	 "--listen-fd",
		handed.listen_text, "--lock-fd", handed.lock_text,
		"--detach",	    "--idle",	 "1"
	};
	char name[64], target[256];
	int early, leaks[2], pid;

	make_handed(&handed);
	early = client_connect(path); /* before there is a helper */
	assert_true(early >= 0);
	assert_int_equal(pipe(leaks), 0);
	assert_int_equal(process_end(start(arguments)), 0);
	close_handed(&handed);
	(void)close(leaks[1]);
	assert_int_equal(read(leaks[0], target, 1), 0);
	(void)close(leaks[0]);
	pid = pid_behind(early);
	assert_int_equal(getsid(pid), pid);
	snprintf(name, sizeof(name), "/proc/%d/fd/0", pid);
	if (!geteuid()) {
		ssize_t n = readlink(name, target, sizeof(target) - 1);

		assert_true(n > 0);
		target[n] = '\0';
		assert_string_equal(target, "/dev/null");
	}
	(void)close(early);
	while (exists(path))
		process_wait_ms(10);
}

/* Its log is not among the descriptors that it leaves behind. */
static void what_is_in_the_background_has_a_log(void **state)
{
	const char *arguments[PROCESS_WORDS_MAX] = { "--socket", path,
						     "--detach", "--idle",
						     "0" };
	char *log = harness_path(directory, "log"), *text;
	char setting[KI_PATH_MAX + 16];
	const char *settings[] = { setting, NULL };
	size_t size;

	snprintf(setting, sizeof(setting), "KILN_LOG=%s", log);
	assert_int_equal(
		process_end(process_start(program, arguments, settings)), 0);
	text = harness_read(log, &size);
	for (int i = 0;
	     i < HARNESS_HANG_S * 100 && !(text && strstr(text, ": ends\n"));
	     i++) {
		process_wait_ms(10);
		free(text);
		text = harness_read(log, &size);
	}
	assert_non_null(text);
	assert_non_null(strstr(text, ": ends\n"));
	assert_non_null(strstr(text, ": serves "));
	free(text);
	free(log);
}

static void wrong_usage_is_said(void **state)
{
	static const char *const rows[][PROCESS_WORDS_MAX] = {
		{ "--nothing" },
		{ "--socket", "relative.sock" },
		{ "--socket" },
		{ "word" },
		{ NULL },
		{ "--socket", "/x/a.sock", "--listen-fd", "0" },
		{ "--socket", "/x/a.sock", "--listen-fd", "999" },
		{ "--socket", "/x/a.sock", "--idle", "soon" },
		{ "--socket", "/x/a.sock", "--memory", "much" },
	};
	const char *descriptors[PROCESS_WORDS_MAX] = { "--socket",    path,
						       "--listen-fd", "0",
						       "--lock-fd",   "0" };
	const char *name[PROCESS_WORDS_MAX] = { "--socket", directory };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(process_end(start(rows[i])), 2);
	assert_int_equal(process_end(start(descriptors)), 5);
	assert_int_equal(process_end(start(name)), 5);
}

/* The table of options is in main.c; the page is written by hand. */
static void every_option_is_in_the_page_of_the_manual(void **state)
{
	char command[KI_PATH_MAX + 16], line[256], *page, *name;
	size_t size;
	FILE *help;
	int n = 0;

	page = harness_read(page_path, &size);
	assert_non_null(page);
	snprintf(command, sizeof(command), "'%s' --help", program);
	help = popen(command, "r");
	while (fgets(line, sizeof(line), help)) {
		if (strncmp(line, "  --", 4))
			continue;
		name = strtok(line, " \n");
		if (!strstr(page, name))
			fail_msg("%s is not in %s", name, page_path);
		n++;
	}
	assert_int_equal(pclose(help), 0);
	assert_true(n >= 8);
	free(page);
}

int main(int argc, char **argv)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		ROW(a_program_is_greeted_and_a_get_is_answered),
		ROW(what_breaks_the_rules_is_cut_off_and_others_are_served),
		ROW(versions_that_do_not_meet_part_after_the_answer),
		ROW(a_connection_may_end_at_any_byte),
		ROW(a_thousand_programs_are_served_at_once),
		ROW(who_reads_no_answers_is_cut_off_and_others_are_served),
		ROW(who_asks_much_and_reads_late_has_all_its_answers),
		ROW(who_has_been_quiet_for_long_may_read_slowly),
		ROW(told_to_end_it_leaves_no_name),
		ROW(told_to_end_without_descriptors_it_does_not_fall),
		ROW(there_is_one_helper_to_a_socket),
		ROW(one_that_was_killed_is_followed_by_the_next),
		ROW(a_place_that_others_can_reach_is_refused),
		ROW(without_its_name_it_ends_and_leaves_that_of_another),
		ROW(it_ends_when_nobody_comes),
		ROW(it_goes_first_when_memory_is_short),
		ROW(what_is_handed_over_is_served_in_the_background),
		ROW(what_is_in_the_background_has_a_log),
		ROW(wrong_usage_is_said),
		ROW(every_option_is_in_the_page_of_the_manual),
	};
#undef ROW

	if (argc < 3) {
		fprintf(stderr, "usage: %s kiln-remote PAGE\n", argv[0]);
		return 2;
	}
	program = argv[1];
	page_path = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
