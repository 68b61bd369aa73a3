/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/remote.h>

#include "base/hash.h"
#include "client_test.h"
#include "remote/protocol.h"

#include "node.h"

#define VARIABLES_MAX 32

struct node {
	char *directory;
	char *names[VARIABLES_MAX], *values[VARIABLES_MAX];
	size_t n;
};

static char *kiln_program, *helper_program; /* while the process lives */

void node_programs(const char *kiln, const char *kiln_remote)
{
	/* They are started from elsewhere. */
	kiln_program = realpath(kiln, NULL);
	helper_program = realpath(kiln_remote, NULL);
	if (!kiln_program || !helper_program)
		abort();
}

/* ---- A machine -------------------------------------------------------------- */

void node_set(struct node *node, const char *name, const char *value)
{
	size_t i = 0;

	while (i < node->n && strcmp(node->names[i], name))
		i++;
	if (i == node->n) {
		assert_true(i < VARIABLES_MAX);
		node->names[i] = strdup(name);
		node->values[i] = NULL;
		node->n++;
	}
	free(node->values[i]);
	node->values[i] = value ? strdup(value) : NULL;
}

static void set_folder(struct node *node, const char *name, const char *folder,
		       const char *prefix)
{
	char *path = harness_path(node->directory, folder), *value;

	if (!*prefix && mkdir(path, 0700))
		assert_int_equal(errno, EEXIST);
	assert_true(asprintf(&value, "%s%s", prefix, path) > 0);
	node_set(node, name, value);
	free(value);
	free(path);
}

struct node *node_new(void)
{
	struct node *node = calloc(1, sizeof(*node));

	assert_non_null(node);
	node->directory = harness_directory();
	set_folder(node, "HOME", "home", "");
	set_folder(node, "XDG_RUNTIME_DIR", "run", "");
	set_folder(node, "XDG_CACHE_HOME", "cache", "");
	set_folder(node, "XDG_CONFIG_HOME", "config", "");
	set_folder(node, "KILN_STORE", "store", "log:");
	/* Nothing else that is set where the tests run. */
	node_set(node, "KILN_DIR", NULL);
	node_set(node, "KILN_REMOTE", NULL);
	node_set(node, "KILN_REMOTE_CREDENTIALS", NULL);
	node_set(node, "KILN_REMOTE_TRUST", "transport");
	node_set(node, "KILN_SIGNING_KEY", NULL);
	node_set(node, "http_proxy", NULL);
	return node;
}

void node_free(struct node *node)
{
	if (!node)
		return;
	node_kill_helper(node);
	for (size_t i = 0; i < node->n; i++) {
		free(node->names[i]);
		free(node->values[i]);
	}
	harness_remove(node->directory);
	free(node->directory);
	free(node);
}

const char *node_directory(const struct node *node)
{
	return node->directory;
}

void node_enter(const struct node *node)
{
	for (size_t i = 0; i < node->n; i++)
		if (node->values[i])
			setenv(node->names[i], node->values[i], 1);
		else
			unsetenv(node->names[i]);
}

/* ---- Programs --------------------------------------------------------------- */

static pid_t begin(struct node *node, node_program *program, unsigned index,
		   void *arg)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	node_enter(node);
	/* Not exit(): what the test has to do at its end is the test's. */
	_exit(program(index, arg));
}

pid_t node_start(struct node *node, node_program *program, void *arg)
{
	return begin(node, program, 0, arg);
}

int node_end(pid_t program)
{
	int status;

	assert_int_equal(waitpid(program, &status, 0), program);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int node_run(struct node *node, node_program *program, void *arg)
{
	return node_end(node_start(node, program, arg));
}

unsigned node_run_many(struct node *node, unsigned n, node_program *program,
		       void *arg)
{
	pid_t *pids = calloc(n, sizeof(*pids));
	unsigned bad = 0;

	assert_non_null(pids);
	for (unsigned i = 0; i < n; i++)
		pids[i] = begin(node, program, i, arg);
	for (unsigned i = 0; i < n; i++)
		bad += node_end(pids[i]) != 0;
	free(pids);
	return bad;
}

void *node_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

static char *read_all(int fd)
{
	char *text = calloc(1, 1 << 20);
	size_t size = 0;
	ssize_t n;

	assert_non_null(text);
	while ((n = read(fd, text + size, (1 << 20) - 1 - size)) > 0)
		size += (size_t)n;
	return text;
}

int node_tool(struct node *node, const char *const *arguments, char **out_text)
{
	const char *words[32] = { kiln_program };
	int ends[2];
	pid_t pid;
	char *text;

	for (int i = 0; i < 30 && arguments[i]; i++)
		words[i + 1] = arguments[i];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		node_enter(node);
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execv(kiln_program, (char **)(uintptr_t)words);
		_exit(127);
	}
	close(ends[1]);
	text = read_all(ends[0]);
	close(ends[0]);
	if (out_text)
		*out_text = text;
	else
		free(text);
	return node_end(pid);
}

/* ---- The helper ------------------------------------------------------------- */

char *node_socket(const struct node *node)
{
	char *pattern = harness_path(node->directory, "run/kiln/remote-*.sock");
	char *path = NULL;
	glob_t found;

	if (!glob(pattern, 0, NULL, &found)) {
		path = strdup(found.gl_pathv[0]);
		globfree(&found);
	}
	free(pattern);
	return path;
}

#define WRAPPER "TEST_HELPER" /* what is started in the helper's place */

void node_preload_helper(struct node *node, const char *library)
{
	char *path = harness_path(node->directory, "helper.sh"), *text;
	int n = asprintf(&text, "#!/bin/sh\nLD_PRELOAD='%s' exec '%s' \"$@\"\n",
			 library, helper_program);

	assert_true(n > 0);
	harness_write(path, text, (size_t)n);
	assert_int_equal(chmod(path, 0700), 0);
	node_set(node, WRAPPER, path);
	free(text);
	free(path);
}

int node_start_helper_of(const struct kiln_options *options)
{
	const char *wrapper = getenv(WRAPPER);
	char message[512] = "";

	if (!kiln_remote_start(options, wrapper ? wrapper : helper_program,
			       message, sizeof(message)))
		return 0;
	fprintf(stderr, "# no helper: %s\n", message);
	return 1;
}

int node_start_helper_here(void)
{
	char message[512] = "";
	struct kiln_config *config;
	struct kiln_options options;
	int bad = 1;

	if (kiln_config_load(&config, message, sizeof(message)) == KILN_OK) {
		kiln_options_init(&options);
		kiln_config_options(config, &options);
		bad = node_start_helper_of(&options);
		kiln_config_free(config);
	} else {
		fprintf(stderr, "# %s\n", message);
	}
	return bad;
}

static int start_helper(unsigned index, void *arg)
{
	return node_start_helper_here();
}

int node_try_helper(struct node *node)
{
	return node_run(node, start_helper, NULL);
}

void node_start_helper(struct node *node)
{
	assert_int_equal(node_try_helper(node), 0);
	assert_true(node_helper(node) > 0);
}

pid_t node_helper(struct node *node)
{
	char *path = node_socket(node);
	struct answer answer;
	pid_t pid = 0;
	int fd = path ? client_connect(path) : -1;

	free(path);
	if (fd < 0)
		return 0;
	/* Who made the socket is not who serves it: it says who it is. */
	client_hello(fd);
	if (client_receive(fd, &answer)) {
		struct ki_reader body =
			ki_reader(answer.body, answer.frame.size);

		(void)ki_read_u64(&body);
		(void)ki_read_u64(&body);
		pid = (pid_t)ki_read_u32(&body);
		free(answer.body);
	}
	close(fd);
	return pid;
}

void node_kill_helper(struct node *node)
{
	const pid_t pid = node_helper(node);
	/* It is nobody's child. */
	struct pollfd ended = { .fd = pid ? pidfd_open(pid, 0) : -1,
				.events = POLLIN };

	if (ended.fd < 0)
		return;
	(void)kill(pid, SIGKILL);
	(void)poll(&ended, 1, HARNESS_HANG_S * 1000);
	close(ended.fd);
}

static int open_connection(struct node *node)
{
	char *path = node_socket(node);
	int fd;

	assert_non_null(path);
	fd = client_open(path);
	free(path);
	assert_true(fd >= 0);
	return fd;
}

void node_drain(struct node *node)
{
	const uint8_t ms[4] = { 0x60, 0xea }; /* a minute */
	int fd = open_connection(node);
	struct answer answer;

	client_send(fd, KI_FRAME_DRAIN, 9, ms, sizeof(ms));
	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.type, KI_FRAME_DRAINED);
	assert_int_equal(answer.frame.status, KILN_OK);
	free(answer.body);
	close(fd);
}

char *node_tell(struct node *node, uint32_t what)
{
	const uint8_t body[4] = { (uint8_t)what };
	int fd = open_connection(node);
	struct answer answer;
	char *text;

	client_send(fd, KI_FRAME_TELL, 9, body, sizeof(body));
	assert_true(client_receive(fd, &answer));
	assert_int_equal(answer.frame.type, KI_FRAME_TOLD);
	text = strndup((const char *)answer.body, answer.frame.size);
	free(answer.body);
	close(fd);
	return text;
}

uint64_t node_told(struct node *node, const char *name)
{
	char *text = node_tell(node, 0), member[64], *found;
	uint64_t number;

	snprintf(member, sizeof(member), "\"%s\": ", name);
	found = strstr(text, member);
	assert_non_null(found);
	number = strtoull(found + strlen(member), NULL, 10);
	free(text);
	return number;
}

/* ---- In a program ----------------------------------------------------------- */

struct kiln *node_open_kiln(uint32_t flags)
{
	char message[512] = "";
	struct kiln_config *config;
	struct kiln_options options;
	struct kiln *kiln = NULL;

	if (kiln_config_load(&config, message, sizeof(message))) {
		fprintf(stderr, "# %s\n", message);
		return NULL;
	}
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	options.flags |= flags;
	(void)kiln_open(&options, &kiln);
	kiln_config_free(config);
	return kiln;
}

int node_drain_here(void)
{
	char message[512] = "";
	struct kiln_config *config;
	struct kiln_options options;
	enum kiln_status status;

	if (kiln_config_load(&config, message, sizeof(message)))
		return 1;
	kiln_options_init(&options);
	kiln_config_options(config, &options);
	status = kiln_remote_drain(&options, HARNESS_HANG_S * 1000);
	kiln_config_free(config);
	return status != KILN_OK;
}

struct kiln_key *node_key(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "what", "a kernel of the tests of remotes");
	kiln_key_add(key, "number", &n, sizeof(n));
	return kiln_key_finish(key) ? NULL : key;
}

void node_value(unsigned n, void *bytes, size_t size)
{
	uint64_t state = n;
	uint8_t *out = bytes;

	for (size_t i = 0; i < size; i += 8) {
		const uint64_t word = harness_random(&state);

		memcpy(out + i, &word, size - i < 8 ? size - i : 8);
	}
}

void node_name(unsigned n, char out_name[NODE_NAME_BYTES])
{
	struct kiln_key *key = node_key(n);
	uint8_t digest[KI_BLAKE2B_BYTES], name[KI_REMOTE_NAME_BYTES];
	size_t size;
	const void *record = kiln_key_record(key, &size);

	ki_blake2b(record, size, digest);
	ki_remote_name(digest, 0, name);
	for (int i = 0; i < KI_REMOTE_NAME_BYTES; i++)
		snprintf(out_name + 2 * i, 3, "%02x", name[i]);
	kiln_key_free(key);
}

uint64_t node_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct building {
	struct node_use *use;
	unsigned n;
};

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *out_result)
{
	struct building *building = arg;
	struct node_use *use = building->use;
	const uint64_t until_ns = node_now_ns() + use->build_ns;
	void *bytes = malloc(use->size);

	if (use->n_builds)
		++*use->n_builds;
	/* A build is work. */
	while (node_now_ns() < until_ns)
		(void)usleep(1000);
	if (bytes)
		node_value(building->n, bytes, use->size);
	out_result->kind =
		bytes && !kiln_blob_copy(bytes, use->size, &out_result->blob)
			? KILN_BUILD_OK
			: KILN_BUILD_FAILED;
	free(bytes);
}

static int is_right(const struct kiln_blob *blob, unsigned n, size_t size)
{
	void *bytes = malloc(size);
	int right = bytes && kiln_blob_size(blob) == size;

	if (right) {
		node_value(n, bytes, size);
		right = !memcmp(bytes, kiln_blob_data(blob), size);
	}
	free(bytes);
	return right;
}

int node_use(struct kiln *kiln, unsigned n, struct node_use *use)
{
	struct building building = { .use = use, .n = n };
	struct kiln_build_result result;
	struct kiln_key *key = node_key(n);
	uint64_t begun_ns = node_now_ns();
	enum kiln_status status;
	int wrong;

	kiln_build_result_init(&result);
	status = kiln_get_or_build(kiln, key, build, &building, &result);
	use->ns = node_now_ns() - begun_ns;
	kiln_key_free(key);
	if (status)
		return 1;
	use->source = result.source;
	wrong = !is_right(result.blob, n, use->size);
	kiln_build_result_fini(&result);
	return wrong ? 2 : 0;
}
