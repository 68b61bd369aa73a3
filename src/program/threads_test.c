/* SPDX-License-Identifier: MIT */

/* Many threads, and what they must not do to each other. */

#include "harness/harness.h"

#include "memory/memory.h"
#include "program/program.h"
#include "program/runtime_test.h"

struct crowd {
	struct rt rt;
	struct kiln_programs *programs;
	struct kiln_program_key *keys[8];
	struct kiln_kernel_key *kernel_keys[8];
	size_t n_keys;
	unsigned n_rounds;
	unsigned wait_for; /* so many others wait for the build */
	unsigned n_fails;  /* builds */
	enum kiln_build_kind kind;
	_Atomic unsigned n_failed, n_other, n_wrong;
	void *_Atomic seen;
};

static struct kiln_programs_options bounded(uint64_t bytes_max)
{
	struct kiln_programs_options options = rt_options();

	options.bytes_max = bytes_max;
	return options;
}

static void wait_for_others(struct rt *rt, void *arg)
{
	struct crowd *crowd = arg;
	unsigned n = rt_calls(rt, RT_BUILD);

	/* The n-th of those that try has the rest waiting. */
	while (n == 1 &&
	       ki_memory_waited(crowd->programs->memory) < crowd->wait_for)
		sched_yield();
}

static void crowd_begin(struct crowd *crowd, size_t n_keys,
			struct kiln_programs_options options)
{
	struct ask ask;

	rt_init(&crowd->rt);
	crowd->programs = rt_programs(&crowd->rt, options);
	crowd->n_keys = n_keys;
	for (unsigned i = 0; i < n_keys; i++) {
		ask_init(&ask, &crowd->rt, i, 0);
		crowd->keys[i] = ask_key(crowd->programs, &ask);
		/* The key points to the image. */
		crowd->keys[i]->image.data = strdup(ask.text);
		crowd->kernel_keys[i] =
			ask_kernel(crowd->keys[i], &crowd->rt.devices[0], "k");
	}
}

/* What somebody was looking at when it was dropped goes at a later change;
   nobody looks now. */
static void settle(struct crowd *crowd)
{
	ki_memory_trim(crowd->programs->memory, UINT64_MAX);
}

static void crowd_end(struct crowd *crowd)
{
	for (size_t i = 0; i < crowd->n_keys; i++) {
		free((void *)crowd->keys[i]->image.data);
		kiln_kernel_key_free(crowd->kernel_keys[i]);
		kiln_program_key_free(crowd->keys[i]);
	}
	rt_free(&crowd->rt, crowd->programs);
	assert_true(rt_is_clean(&crowd->rt));
}

static int get_one(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_program_failure failure;
	struct kiln_program *program;
	enum kiln_status status;
	void *none = NULL;

	kiln_program_failure_init(&failure);
	status = kiln_program_get(crowd->programs, crowd->keys[0], &program,
				  &failure);
	if (status == KILN_E_BUILD) {
		atomic_fetch_add(&crowd->n_failed, 1);
		if (failure.kind != crowd->kind || !failure.message ||
		    failure.code != -(int)crowd->kind - 10)
			atomic_fetch_add(&crowd->n_wrong, 1);
	} else if (status) {
		atomic_fetch_add(&crowd->n_wrong, 1);
	} else {
		if (!atomic_compare_exchange_strong(&crowd->seen, &none,
						    program) &&
		    none != program)
			atomic_fetch_add(&crowd->n_other, 1);
		kiln_program_unref(program);
	}
	kiln_program_failure_fini(&failure);
	return 0;
}

/*
 * S18: 64 threads and one key are one build.  S22: failures of each kind, with
 * 63 waiting.  Spurious ones are tried again by each who waited, one at a time;
 * of resources once, for all.
 */
static void sixty_four_threads_want_one_program(void **state)
{
	static const struct {
		enum kiln_build_kind kind;
		unsigned n_fails, n_builds, n_failed;
	} rows[] = {
		{ KILN_BUILD_OK, 0, 1, 0 },
		{ KILN_BUILD_FAILED, 1, 1, 64 },
		{ KILN_BUILD_SPURIOUS, 1, 2, 1 },
		{ KILN_BUILD_SPURIOUS, 5, 6, 5 },
		{ KILN_BUILD_SPURIOUS, 64, 64, 64 },
		{ KILN_BUILD_RESOURCES, 1, 2, 0 },
		{ KILN_BUILD_RESOURCES, 2, 2, 64 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct crowd crowd = { .kind = rows[i].kind, .wait_for = 63 };

		crowd_begin(&crowd, 1, rt_options());
		crowd.rt.plan = (struct rt_plan){ RT_BUILD, 0, rows[i].n_fails,
						  rows[i].kind };
		crowd.rt.in_build = wait_for_others;
		crowd.rt.in_build_arg = &crowd;
		harness_threads(64, get_one, &crowd);
		assert_int_equal(rt_calls(&crowd.rt, RT_BUILD),
				 rows[i].n_builds);
		assert_int_equal(crowd.n_failed, rows[i].n_failed);
		assert_int_equal(crowd.n_wrong, 0);
		assert_int_equal(crowd.n_other, 0);
		crowd_end(&crowd);
	}
}

static int get_kernels(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_kernel *kernel;
	int n_wrong = 0;

	for (unsigned i = 0; i < crowd->n_rounds; i++) {
		size_t k = (index + i) % crowd->n_keys;
		const struct rt_kernel *made;

		if (kiln_kernel_get(crowd->programs, crowd->kernel_keys[k],
				    &kernel, NULL)) {
			n_wrong++;
			continue;
		}
		made = kiln_kernel_handle(kernel);
		n_wrong +=
			made->magic != RT_MAGIC ||
			made->program->magic != RT_MAGIC ||
			memcmp(made->program->image, crowd->keys[k]->image.data,
			       crowd->keys[k]->image.data_size) != 0;
		kiln_kernel_unref(kernel);
	}
	return n_wrong;
}

/* TestConcurrentEvictionSameQueue: 200 threads, three kernels, room for two
   programs. */
static void two_hundred_threads_evict_each_others_programs(void **state)
{
	struct crowd crowd = { .n_rounds = 20 };

	crowd_begin(&crowd, 3, bounded(20005));
	crowd.rt.pad = 10000;
	assert_int_equal(harness_threads(200, get_kernels, &crowd), 0);
	assert_in_range(rt_stats(crowd.programs).n_programs, 1, 2);
	assert_in_range(rt_stats(crowd.programs).bytes, 1, 20005);
	settle(&crowd);
	assert_int_equal(atomic_load(&crowd.rt.live_programs),
			 rt_stats(crowd.programs).n_programs);
	assert_true(rt_stats(crowd.programs).evicted > 0);
	crowd_end(&crowd);
}

/* TestConcurrentEvictionSmallCache: 300 threads, one kernel, which is larger
   than the bound: nothing is kept. */
static void three_hundred_threads_want_what_does_not_fit(void **state)
{
	struct crowd crowd = { .n_rounds = 1 };

	crowd_begin(&crowd, 1, bounded(100));
	crowd.rt.pad = 10000;
	assert_int_equal(harness_threads(300, get_kernels, &crowd), 0);
	assert_int_equal(rt_stats(crowd.programs).n_programs, 0);
	assert_int_equal(rt_stats(crowd.programs).n_kernels, 0);
	assert_int_equal(rt_stats(crowd.programs).bytes, 0);
	settle(&crowd);
	assert_int_equal(atomic_load(&crowd.rt.live_programs), 0);
	crowd_end(&crowd);
}

/* By constants, device and name: nothing, or a kernel that lives.  All images
   have one of this name, so there is one only where a single program is kept. */
static int find_kernels(struct crowd *crowd)
{
	struct kiln_kernel *kernel;
	int n_wrong = 0;

	for (unsigned i = 0; i < crowd->n_rounds * 4; i++) {
		const struct rt_kernel *made;

		if (kiln_kernel_find(crowd->programs, NULL, 0,
				     &crowd->rt.devices[0], "k", &kernel))
			continue;
		made = kiln_kernel_handle(kernel);
		n_wrong += made->magic != RT_MAGIC ||
			   made->program->magic != RT_MAGIC;
		kiln_kernel_unref(kernel);
	}
	return n_wrong;
}

/* One thread wipes while others get: nothing is released twice or used after,
   and nothing stays behind. */
static int wipe_and_get(unsigned index, void *arg)
{
	struct crowd *crowd = arg;

	if (index == 1)
		return find_kernels(crowd);
	if (index)
		return get_kernels(index, arg);
	for (unsigned i = 0; i < crowd->n_rounds / 8; i++) {
		if (kiln_programs_wipe(crowd->programs))
			return 1;
		sched_yield();
	}
	return 0;
}

static void wiping_goes_on_beside_hits(void **state)
{
	static const struct {
		size_t n_keys;
		uint64_t bytes_max;
	} rows[] = { { 8, 0 }, { 1, 0 }, { 2, 10000 }, { 8, 40000 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct crowd crowd = { .n_rounds = 400 };

		crowd_begin(&crowd, rows[i].n_keys, bounded(rows[i].bytes_max));
		crowd.rt.pad = 10000;
		assert_int_equal(harness_threads(6, wipe_and_get, &crowd), 0);
		assert_int_equal(kiln_programs_wipe(crowd.programs), KILN_OK);
		assert_int_equal(rt_stats(crowd.programs).n_programs, 0);
		assert_int_equal(rt_stats(crowd.programs).n_kernels, 0);
		settle(&crowd);
		assert_int_equal(atomic_load(&crowd.rt.live_programs), 0);
		assert_int_equal(atomic_load(&crowd.rt.live_kernels), 0);
		crowd_end(&crowd);
	}
}

/*
 * One thread creates a kernel that another, in the middle of a build and so not
 * to wait, creates as well.  That second one is not kept, and its key must not
 * lead to it.
 */
struct twice {
	struct crowd *crowd;
	struct kiln_kernel_key *again; /* of the same kernel */
	_Atomic unsigned n_creating;
	_Atomic int is_first_done;
	_Atomic int n_wrong;
	struct kiln_kernel *kept, *other;
};

static struct twice *twice;

static enum kiln_build_kind create_when_due(
	void *context, void *program, const char *name, void **out_kernel,
	struct kiln_program_failure *failure)
{
	if (!atomic_fetch_add(&twice->n_creating, 1))
		while (atomic_load(&twice->n_creating) < 2)
			sched_yield();
	else
		while (!atomic_load(&twice->is_first_done))
			sched_yield();
	return rt_create_kernel(context, program, name, out_kernel, failure);
}

static void get_within_a_build(struct rt *rt, void *arg)
{
	while (!atomic_load(&twice->n_creating))
		sched_yield();
	if (kiln_kernel_get(twice->crowd->programs, twice->again, &twice->other,
			    NULL))
		atomic_fetch_add(&twice->n_wrong, 1);
}

static int create_or_build(unsigned index, void *arg)
{
	struct crowd *crowd = twice->crowd;
	struct kiln_program *program;

	if (!index) {
		int failed =
			kiln_kernel_get(crowd->programs, crowd->kernel_keys[0],
					&twice->kept, NULL);

		atomic_store(&twice->is_first_done, 1);
		return failed;
	}
	if (kiln_program_get(crowd->programs, crowd->keys[1], &program, NULL))
		return 1;
	kiln_program_unref(program);
	return atomic_load(&twice->n_wrong);
}

static void a_key_never_leads_to_a_kernel_that_is_not_kept(void **state)
{
	struct crowd crowd = { .n_rounds = 1 };
	struct twice both = { .crowd = &crowd };
	struct kiln_program *program;
	struct kiln_kernel *kernel;

	twice = &both;
	crowd_begin(&crowd, 2, rt_options());
	both.again = ask_kernel(crowd.keys[0], &crowd.rt.devices[0], "k");
	assert_int_equal(
		kiln_program_get(crowd.programs, crowd.keys[0], &program, NULL),
		KILN_OK);
	program->home->runtime.create_kernel = create_when_due;
	crowd.rt.in_build = get_within_a_build;
	assert_int_equal(harness_threads(2, create_or_build, &crowd), 0);
	assert_ptr_not_equal(both.kept, both.other);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kiln_kernel_get(crowd.programs, both.again,
						 &kernel, NULL),
				 KILN_OK);
		assert_ptr_equal(kernel, both.kept);
		kiln_kernel_unref(kernel);
	}
	kiln_kernel_unref(both.kept);
	kiln_kernel_unref(both.other);
	kiln_program_unref(program);
	kiln_kernel_key_free(both.again);
	crowd_end(&crowd);
}

/* ---- Dropping beside others ------------------------------------------------- */

#define MANY_KERNELS 500

/* One thread's program makes another's image go, which has many kernels; a
   second one forgets that image meanwhile, and looks whether it is forgotten. */
static int evict_or_forget(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_program *program = atomic_load(&crowd->seen);
	struct kiln_blob *blob;

	if (!index) {
		if (kiln_program_get(crowd->programs, crowd->keys[1], &program,
				     NULL))
			return 1;
		kiln_program_unref(program);
		return 0;
	}
	while (atomic_load(&program->is_kept))
		sched_yield();
	if (kiln_programs_forget_image(crowd->programs, &crowd->keys[0]->image))
		return 1;
	/* Another image may have its name now. */
	if (ki_memory_get(crowd->programs->memory, crowd->keys[0]->key, &blob))
		return 0;
	kiln_blob_unref(blob);
	return 1;
}

static void what_is_forgotten_is_not_found_whoever_drops_it(void **state)
{
	for (unsigned round = 0; round < 20; round++) {
		struct crowd crowd = { .n_rounds = 1 };
		struct kiln_program *program;
		char name[16];

		crowd_begin(&crowd, 2, bounded(10000));
		crowd.rt.pad = 10000;
		assert_int_equal(kiln_program_get(crowd.programs, crowd.keys[0],
						  &program, NULL),
				 KILN_OK);
		for (unsigned i = 0; i < MANY_KERNELS; i++) {
			struct kiln_kernel *kernel;

			snprintf(name, sizeof(name), "k%u", i);
			assert_int_equal(kiln_program_kernel(program, name,
							     &kernel, NULL),
					 KILN_OK);
			kiln_kernel_unref(kernel);
		}
		atomic_store(&crowd.seen, program);
		assert_int_equal(harness_threads(2, evict_or_forget, &crowd),
				 0);
		kiln_program_unref(program);
		crowd_end(&crowd);
	}
}

/*
 * A thread is stopped while it looks something up, and another lacks resources:
 * what it makes room of has been released when it tries again.
 */
struct shortage {
	struct crowd crowd;
	_Atomic int is_pinned;
	_Atomic int n_live; /* at the second try */
};

static void note_live(struct rt *rt, void *arg)
{
	struct shortage *shortage = arg;

	if (rt_calls(rt, RT_BUILD) == 3)
		atomic_store(&shortage->n_live,
			     atomic_load(&rt->live_programs));
}

static int look_or_lack(unsigned index, void *arg)
{
	struct shortage *shortage = arg;
	struct crowd *crowd = &shortage->crowd;
	struct kiln_program *program;
	struct ki_slot *slot;

	if (!index) {
		while (!atomic_load(&shortage->is_pinned))
			sched_yield();
		if (kiln_program_get(crowd->programs, crowd->keys[1], &program,
				     NULL))
			return 1;
		kiln_program_unref(program);
		return 0;
	}
	slot = ki_slot_enter();
	atomic_store(&shortage->is_pinned, 1);
	for (unsigned i = 0; rt_calls(&crowd->rt, RT_BUILD) < 3; i++) {
		if (rt_calls(&crowd->rt, RT_BUILD) < 2)
			i = 0;
		if (i == 5000)
			break;
		sched_yield();
	}
	ki_slot_leave(slot);
	return 0;
}

static void room_has_been_made_before_the_second_try(void **state)
{
	struct shortage shortage = { 0 };
	struct crowd *crowd = &shortage.crowd;
	struct kiln_program *program;

	crowd_begin(crowd, 2, rt_options());
	crowd->rt.plan =
		(struct rt_plan){ RT_BUILD, 1, 1, KILN_BUILD_RESOURCES };
	crowd->rt.in_build = note_live;
	crowd->rt.in_build_arg = &shortage;
	assert_int_equal(kiln_program_get(crowd->programs, crowd->keys[0],
					  &program, NULL),
			 KILN_OK);
	kiln_program_unref(program);
	assert_int_equal(harness_threads(2, look_or_lack, &shortage), 0);
	assert_int_equal(rt_calls(&crowd->rt, RT_BUILD), 3);
	/* The one that is being built. */
	assert_int_equal(shortage.n_live, 1);
	crowd_end(crowd);
}

/* ---- Everything at once ------------------------------------------------------ */

#define BAZAAR_IMAGES 6

/* Keys of each image: for both devices, and for either. */
struct bazaar {
	struct rt rt;
	struct kiln_programs *programs;
	struct ask asks[BAZAAR_IMAGES][3];
	struct kiln_program_key *keys[BAZAAR_IMAGES][3];
	struct kiln_kernel_key *kernel_keys[BAZAAR_IMAGES][3];
	_Atomic unsigned n_builds;
	_Atomic unsigned n_got;
};

/* Now and then resources lack, or it fails for no reason. */
static enum kiln_build_kind build_at_a_bazaar(
	void *context, void *handle, void *const *devices, size_t n_devices,
	const char *compile, const char *link,
	struct kiln_program_failure *failure)
{
	struct bazaar *bazaar = (struct bazaar *)context;
	unsigned n = atomic_fetch_add(&bazaar->n_builds, 1);

	if (n % 13 == 12)
		return KILN_BUILD_RESOURCES;
	if (n % 17 == 16)
		return KILN_BUILD_SPURIOUS;
	return rt_build(context, handle, devices, n_devices, compile, link,
			failure);
}

static int is_of_image(struct bazaar *bazaar, size_t image,
		       const struct kiln_kernel *kernel)
{
	const struct rt_kernel *made = kiln_kernel_handle(kernel);
	const struct kiln_program_image *of = &bazaar->asks[image][0].image;

	return made->magic == RT_MAGIC && made->program->magic == RT_MAGIC &&
	       made->program ==
		       kiln_program_handle(kiln_kernel_program(kernel)) &&
	       made->program->image_size == of->data_size &&
	       !memcmp(made->program->image, of->data, of->data_size);
}

static int use_at_a_bazaar(struct bazaar *bazaar, uint64_t random)
{
	size_t image = random % BAZAAR_IMAGES, set = random / 64 % 3;
	struct kiln_program *program = NULL;
	struct kiln_kernel *kernel = NULL;
	enum kiln_status status;
	int is_wrong;

	if (random & 1 << 20) {
		status = kiln_kernel_get(bazaar->programs,
					 bazaar->kernel_keys[image][set],
					 &kernel, NULL);
	} else {
		status = kiln_program_get(bazaar->programs,
					  bazaar->keys[image][set], &program,
					  NULL);
		if (!status)
			status = kiln_program_kernel(program, "k", &kernel,
						     NULL);
	}
	if (!status)
		atomic_fetch_add(&bazaar->n_got, 1);
	is_wrong = status ? status != KILN_E_BUILD
			  : !is_of_image(bazaar, image, kernel);
	kiln_kernel_unref(kernel);
	kiln_program_unref(program);
	return is_wrong;
}

static int find_at_a_bazaar(struct bazaar *bazaar, size_t device)
{
	struct kiln_kernel *kernel;
	size_t image = 0;

	if (kiln_kernel_find(bazaar->programs, NULL, 0,
			     &bazaar->rt.devices[device], "k", &kernel))
		return 0;
	while (image < BAZAAR_IMAGES && !is_of_image(bazaar, image, kernel))
		image++;
	kiln_kernel_unref(kernel);
	return image == BAZAAR_IMAGES;
}

static int trade(unsigned index, void *arg)
{
	struct bazaar *bazaar = arg;
	uint64_t seed = index + 1;
	int n_wrong = 0;

	for (unsigned i = 0; i < 1500; i++) {
		uint64_t random = harness_random(&seed);

		switch (random >> 32 & 127) {
		case 0:
			n_wrong +=
				kiln_programs_wipe(bazaar->programs) != KILN_OK;
			break;
		case 1:
		case 2:
			n_wrong +=
				kiln_programs_forget_image(
					bazaar->programs,
					&bazaar->asks[random % BAZAAR_IMAGES][0]
						 .image) != KILN_OK;
			break;
		case 3:
		case 4:
		case 5:
		case 6:
			n_wrong += find_at_a_bazaar(bazaar, random & 1);
			break;
		default:
			n_wrong += use_at_a_bazaar(bazaar, random);
		}
	}
	return n_wrong;
}

static void bazaar_open(struct bazaar *bazaar,
			struct kiln_programs_options options)
{
	memset(bazaar, 0, sizeof(*bazaar));
	rt_init(&bazaar->rt);
	bazaar->rt.table.build = build_at_a_bazaar;
	bazaar->rt.pad = 1000;
	bazaar->programs = rt_programs(&bazaar->rt, options);
	for (unsigned i = 0; i < BAZAAR_IMAGES; i++)
		for (unsigned set = 0; set < 3; set++) {
			struct ask *ask = &bazaar->asks[i][set];

			ask_init(ask, &bazaar->rt, i, set == 2);
			ask->devices[1] = &bazaar->rt.devices[1];
			ask->request.n_devices = set ? 1 : 2;
			bazaar->keys[i][set] = ask_key(bazaar->programs, ask);
			bazaar->kernel_keys[i][set] = ask_kernel(
				bazaar->keys[i][set], ask->devices[0], "k");
		}
}

static void bazaar_close(struct bazaar *bazaar)
{
	for (unsigned i = 0; i < BAZAAR_IMAGES; i++)
		for (unsigned set = 0; set < 3; set++) {
			kiln_kernel_key_free(bazaar->kernel_keys[i][set]);
			kiln_program_key_free(bazaar->keys[i][set]);
		}
	rt_free(&bazaar->rt, bazaar->programs);
	assert_true(rt_is_clean(&bazaar->rt));
}

/* Each gets what it asks for, or why not; nothing stays behind. */
static void everything_goes_on_at_once(void **state)
{
	static const struct {
		uint64_t bytes_max;
		uint32_t flags;
	} rows[] = {
		{ 0, 0 },
		{ 5000, 0 },
		{ 5000, KILN_PROGRAMS_COLD_HALF },
		{ 0, KILN_PROGRAMS_COLD_HALF },
	};
	static struct bazaar bazaar;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_programs_options options =
			bounded(rows[i].bytes_max);

		options.flags = rows[i].flags;
		bazaar_open(&bazaar, options);
		assert_int_equal(harness_threads(6, trade, &bazaar), 0);
		assert_true(bazaar.n_got > 6 * 1500 / 2);
		assert_int_equal(kiln_programs_wipe(bazaar.programs), KILN_OK);
		assert_int_equal(bazaar.rt.live_programs, 0);
		assert_int_equal(bazaar.rt.live_kernels, 0);
		assert_int_equal(rt_stats(bazaar.programs).bytes, 0);
		bazaar_close(&bazaar);
	}
}

/* ---- Rings ----------------------------------------------------------------- */

/* Two contexts on one kiln; each one's build asks for the other's program, which
   is being built. */
struct ring {
	struct kiln *kiln;
	struct half {
		struct rt rt;
		struct kiln_programs *programs;
		struct kiln_program_key *key;
		struct ask ask;
		struct ring *ring;
		struct half *other;
	} of[2];
	_Atomic unsigned n_building;
	_Atomic unsigned n_wrong;
};

static void ask_for_the_others(struct rt *rt, void *arg)
{
	struct half *half = arg;
	struct kiln_program *program;

	if (atomic_fetch_add(&half->ring->n_building, 1) >= 2)
		return; /* the same, asked for by the other */
	while (atomic_load(&half->ring->n_building) < 2)
		sched_yield();
	if (kiln_program_get(half->other->programs, half->other->key, &program,
			     NULL))
		atomic_fetch_add(&half->ring->n_wrong, 1);
	else
		kiln_program_unref(program);
}

static int get_half(unsigned index, void *arg)
{
	struct ring *ring = arg;
	struct half *half = &ring->of[index];
	struct kiln_program *program;

	if (kiln_program_get(half->programs, half->key, &program, NULL))
		return 1;
	kiln_program_unref(program);
	return 0;
}

/* S23 */
static void builds_that_ask_for_each_other_do_not_wait_in_a_ring(void **state)
{
	for (int has_kiln = 0; has_kiln < 2; has_kiln++) {
		struct ring ring = { 0 };
		struct kiln_options options;

		kiln_options_init(&options);
		assert_int_equal(kiln_open(&options, &ring.kiln), KILN_OK);
		for (unsigned i = 0; i < 2; i++) {
			struct kiln_programs_options of_programs = rt_options();
			struct half *half = &ring.of[i];

			rt_init(&half->rt);
			half->ring = &ring;
			half->other = &ring.of[!i];
			half->rt.in_build = ask_for_the_others;
			half->rt.in_build_arg = half;
			of_programs.kiln = has_kiln ? ring.kiln : NULL;
			half->programs = rt_programs(&half->rt, of_programs);
			ask_init(&half->ask, &half->rt, i, 0);
			half->key = ask_key(half->programs, &half->ask);
		}
		assert_int_equal(harness_threads(2, get_half, &ring), 0);
		assert_int_equal(ring.n_wrong, 0);
		for (unsigned i = 0; i < 2; i++) {
			kiln_program_key_free(ring.of[i].key);
			rt_free(&ring.of[i].rt, ring.of[i].programs);
			assert_true(rt_is_clean(&ring.of[i].rt));
		}
		kiln_close(ring.kiln);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sixty_four_threads_want_one_program),
		cmocka_unit_test(
			two_hundred_threads_evict_each_others_programs),
		cmocka_unit_test(three_hundred_threads_want_what_does_not_fit),
		cmocka_unit_test(wiping_goes_on_beside_hits),
		cmocka_unit_test(
			a_key_never_leads_to_a_kernel_that_is_not_kept),
		cmocka_unit_test(
			what_is_forgotten_is_not_found_whoever_drops_it),
		cmocka_unit_test(room_has_been_made_before_the_second_try),
		cmocka_unit_test(everything_goes_on_at_once),
		cmocka_unit_test(
			builds_that_ask_for_each_other_do_not_wait_in_a_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
