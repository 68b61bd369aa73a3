/* SPDX-License-Identifier: MIT */

/*
 * From a module that the driver built to an entry, beside the program.
 *
 *	zeModuleCreate returns --> queue --> thread: fetch --> put
 *	zeModuleDestroy,           |    ^               |
 *	zeModuleDynamicLink        |    |               |
 *	   not yet fetched --------+    | bytes         +-- waits while it fetches
 *	   fetches itself --------------+
 *
 * The binary is the module's, so it is fetched before the module goes: by the
 * thread, which begins at once (NEO keeps the binary, and only copies it), or by
 * who links or destroys the module, or destroys its context.  Three fetches in a
 * row of more than 10 ms each end capturing in this process; a single one may be
 * the machine's.  The thread has all signals blocked, begins with a build, ends
 * once it has been idle for 100 ms, and no descriptor of its outlives a put.
 *
 * Exit begins no fetch; what has been fetched is put, for 50 ms at most.
 */

#include "front/levelzero/ze.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MS		 ((uint64_t)1000 * 1000)
#define FETCH_NS_MAX	 (10 * MS)
#define N_SLOW_MAX	 3
#define EXIT_NS_MAX	 (50 * MS)
#define IDLE_NS_MAX	 (100 * MS)
#define KEPT_MAX	 256
#define BINARY_BYTES_MAX ((size_t)1 << 30)

struct capture {
	struct ki_list link; /* under ki_ze_lock */
	/* Fixed. */
	const struct ki_guest *guest;
	ze_context_handle_t context;
	ze_module_handle_t module;
	struct kiln_key *key;
	struct kiln_metadata *metadata;
	struct ki_ze_flight *flight;
	/* Whoever took it off the queue. */
	uint8_t *binary; /* NULL: not fetched yet */
	size_t size;
};

/* Under ki_ze_lock. */
static struct ki_list waiting, fetched;
static const struct capture *current; /* being fetched by the thread */
static unsigned n_kept;		      /* on both lists or at work */
static int is_running, is_stopping, is_hooked, is_publishing;
static int is_ended; /* the thread, and nobody has joined it */
static struct ki_cond wake, idle;
static struct ki_thread thread;
/* Atomic: whether a module may be on the queue, or be fetched. */
static _Atomic unsigned n_unfetched;
static _Atomic unsigned n_slow; /* fetches in a row that took long */
static _Atomic int is_slow;

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static void capture_free(struct capture *capture)
{
	ki_ze_flight_end(capture->flight);
	kiln_key_free(capture->key);
	kiln_metadata_free(capture->metadata);
	free(capture->binary);
	free(capture);
}

/* ---- Fetching ---------------------------------------------------------------- */

static void judge(const struct ki_guest *guest, uint64_t ns)
{
	if (ns <= FETCH_NS_MAX)
		atomic_store(&n_slow, 0);
	else if (atomic_fetch_add(&n_slow, 1) + 1 >= N_SLOW_MAX &&
		 !atomic_exchange(&is_slow, 1))
		ki_guest_log(guest,
			     "levelzero: the driver takes long to hand out a "
			     "binary; no more are kept");
}

static void fetch(struct capture *capture)
{
	uint64_t began = now_ns();
	size_t size = 0;
	uint8_t *binary;

	if (ki_ze_next.module_binary(capture->module, &size, NULL) || !size ||
	    size > BINARY_BYTES_MAX)
		return;
	binary = malloc(size);
	if (binary &&
	    !ki_ze_next.module_binary(capture->module, &size, binary)) {
		capture->binary = binary;
		capture->size = size;
		binary = NULL;
	}
	free(binary);
	judge(capture->guest, now_ns() - began);
}

static void keep_record(const struct capture *capture)
{
	struct kiln_key *family = NULL;

	if (!ki_ze_family_key(capture->key, &family))
		ki_family_keep(capture->guest->kiln, capture->key, family,
			       "levelzero");
	kiln_key_free(family);
}

static void put(struct capture *capture)
{
	enum kiln_status status;

	if (!ki_ze_identity_holds())
		return;
	status = kiln_put(capture->guest->kiln, capture->key, capture->binary,
			  capture->size, capture->metadata, 0);
	if (status == KILN_OK)
		keep_record(capture);
	if (status == KILN_E_FULL)
		kiln_count(capture->guest->kiln, KILN_COUNT_MISS_FULL, 1);
}

/* ---- The thread -------------------------------------------------------------- */

static struct capture *take_locked(struct ki_list *list)
	KI_REQUIRES(&ki_ze_lock)
{
	struct capture *capture =
		ki_container(list->next, struct capture, link);

	ki_list_remove(&capture->link);
	return capture;
}

static void fetch_one(void) KI_REQUIRES(&ki_ze_lock)
{
	struct capture *capture = take_locked(&waiting);

	current = capture;
	ki_mutex_unlock(&ki_ze_lock);
	if (!atomic_load(&is_slow))
		fetch(capture);
	ki_mutex_lock(&ki_ze_lock);
	current = NULL;
	atomic_fetch_sub(&n_unfetched, 1);
	ki_list_append(&fetched, &capture->link);
	ki_cond_signal_all(&idle);
}

static void publish_one(void) KI_REQUIRES(&ki_ze_lock)
{
	struct capture *capture = take_locked(&fetched);

	is_publishing = 1;
	ki_mutex_unlock(&ki_ze_lock);
	if (capture->binary)
		put(capture);
	capture_free(capture);
	ki_mutex_lock(&ki_ze_lock);
	n_kept--;
	is_publishing = 0;
	ki_cond_signal_all(&idle);
}

static int has_work_locked(void) KI_REQUIRES(&ki_ze_lock)
{
	return !ki_list_is_empty(&fetched) ||
	       (!ki_list_is_empty(&waiting) && !is_stopping);
}

/* Whether there is work, or was a moment ago. */
static int wait_locked(void) KI_REQUIRES(&ki_ze_lock)
{
	return has_work_locked() ||
	       (!is_stopping && (!ki_cond_wait_until(&wake, &ki_ze_lock,
						     now_ns() + IDLE_NS_MAX) ||
				 has_work_locked()));
}

static void work(void *arg)
{
	ki_mutex_lock(&ki_ze_lock);
	while (wait_locked()) {
		if (!ki_list_is_empty(&waiting) && !is_stopping)
			fetch_one();
		else if (!ki_list_is_empty(&fetched))
			publish_one();
	}
	is_running = 0;
	is_ended = 1;
	ki_mutex_unlock(&ki_ze_lock);
}

static void start_locked(void) KI_REQUIRES(&ki_ze_lock)
{
	if (is_running || is_stopping)
		return;
	/* One that has ended takes the lock no more. */
	if (is_ended)
		ki_thread_join(&thread);
	is_ended = 0;
	/* Under the lock, which it waits for. */
	is_running = !ki_thread_start(&thread, work, NULL);
}

static int is_busy_locked(void) KI_REQUIRES(&ki_ze_lock)
{
	return current || is_publishing || !ki_list_is_empty(&fetched);
}

static void at_exit(void)
{
	uint64_t deadline = now_ns() + EXIT_NS_MAX;
	int may_join;

	if (ki_ze_is_child())
		return;
	ki_mutex_lock(&ki_ze_lock);
	is_stopping = 1;
	ki_cond_signal_all(&wake);
	ki_ze_flights_close_locked();
	while (is_running && is_busy_locked() &&
	       !ki_cond_wait_until(&idle, &ki_ze_lock, deadline))
		;
	may_join = is_ended || (is_running && !is_busy_locked());
	is_running = 0;
	ki_mutex_unlock(&ki_ze_lock);
	if (may_join)
		ki_thread_join(&thread);
}

void ki_ze_capture_init(void)
{
	ki_list_init(&waiting);
	ki_list_init(&fetched);
	ki_cond_init(&wake);
	ki_cond_init(&idle);
	ki_ze_flights_init();
}

void ki_ze_capture_forget_locked(void)
{
	ki_ze_capture_init();
	current = NULL;
	n_kept = 0;
	is_publishing = 0;
	is_running = 0;
	is_ended = 0;
	atomic_store(&n_unfetched, 0);
}

/* ---- What the program does --------------------------------------------------- */

/* As late as can be: before what the driver registered until now. */
static int hook_exit(void)
{
	int must;

	ki_mutex_lock(&ki_ze_lock);
	must = !is_hooked;
	is_hooked = 1;
	ki_mutex_unlock(&ki_ze_lock);
	return must && atexit(at_exit) ? -1 : 0;
}

int ki_ze_captures(const struct ki_guest *guest)
{
	return !kiln_config_number(guest->config, KILN_SET_READONLY) &&
	       !atomic_load(&is_slow) && ki_ze_next.module_binary;
}

void ki_ze_capture(const struct ki_guest *guest, ze_context_handle_t context,
		   ze_module_handle_t module, struct kiln_key *key,
		   struct kiln_metadata *metadata, struct ki_ze_flight *flight)
{
	struct capture *capture = calloc(1, sizeof(*capture));

	if (!capture) {
		kiln_metadata_free(metadata);
		ki_ze_flight_end(flight);
		return;
	}
	*capture = (struct capture){
		.guest = guest,
		.context = context,
		.module = module,
		.key = kiln_key_ref(key),
		.metadata = metadata,
		.flight = flight,
	};
	if (!ki_ze_captures(guest) || hook_exit()) {
		capture_free(capture);
		return;
	}
	ki_mutex_lock(&ki_ze_lock);
	start_locked();
	if (is_running && n_kept < KEPT_MAX) {
		ki_list_append(&waiting, &capture->link);
		n_kept++;
		atomic_fetch_add(&n_unfetched, 1);
		ki_cond_signal_all(&wake);
		capture = NULL;
	}
	ki_mutex_unlock(&ki_ze_lock);
	if (capture)
		capture_free(capture);
}

static int is_of(const struct capture *capture, ze_module_handle_t module,
		 ze_context_handle_t context)
{
	return module ? capture->module == module : capture->context == context;
}

/* Off the queue, if it is there. */
static struct capture *find_locked(ze_module_handle_t module,
				   ze_context_handle_t context)
	KI_REQUIRES(&ki_ze_lock)
{
	struct capture *capture;
	struct ki_list *link;

	ki_list_for_each (link, &waiting) {
		capture = ki_container(link, struct capture, link);
		if (!is_of(capture, module, context))
			continue;
		ki_list_remove(link);
		return capture;
	}
	return NULL;
}

/* Fetch what is going away, or wait until it has been fetched. */
static void finish(ze_module_handle_t module, ze_context_handle_t context)
{
	struct capture *capture;

	ki_mutex_lock(&ki_ze_lock);
	while ((capture = find_locked(module, context))) {
		ki_mutex_unlock(&ki_ze_lock);
		if (!atomic_load(&is_slow))
			fetch(capture);
		ki_mutex_lock(&ki_ze_lock);
		atomic_fetch_sub(&n_unfetched, 1);
		ki_list_append(&fetched, &capture->link);
		ki_cond_signal_all(&wake);
	}
	while (current && is_of(current, module, context))
		ki_cond_wait(&idle, &ki_ze_lock);
	ki_mutex_unlock(&ki_ze_lock);
}

ze_result_t ZE_APICALL ki_ze_module_destroy(ze_module_handle_t module)
{
	if (module && atomic_load(&n_unfetched))
		finish(module, NULL);
	return ki_ze_next.module_destroy(module);
}

/* What is kept is what the build made, not what linking makes of it. */
ze_result_t ZE_APICALL ki_ze_module_link(uint32_t n,
					 ze_module_handle_t *modules,
					 ze_module_build_log_handle_t *out_log)
{
	uint32_t i;

	for (i = 0; modules && i < n; i++)
		if (modules[i] && atomic_load(&n_unfetched))
			finish(modules[i], NULL);
	return ki_ze_next.module_link(n, modules, out_log);
}

ze_result_t ZE_APICALL ki_ze_context_destroy(ze_context_handle_t context)
{
	if (context && atomic_load(&n_unfetched))
		finish(NULL, context);
	return ki_ze_next.context_destroy(context);
}
