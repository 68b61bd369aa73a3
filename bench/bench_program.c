/* SPDX-License-Identifier: MIT */

/*
 * Live programs and kernels.  A name as argument runs only that group.
 *
 * fast      kiln_kernel_get() with a prepared key and kiln_kernel_find() with
 *           none, against the original's ways (original_programs.h): 1000
 *           kernels with names as compilers mangle them, 16 bytes of
 *           constants, one device.  A hit takes and drops a reference.
 * programs  kiln_program_get() with 10,000 programs: two threads to one.
 * eviction  what an insertion costs that evicts one program, its kernel and
 *           its fast entry, with 100,000 programs kept and with 1,000; with
 *           kernels of different names, and of one.
 *
 * The runtime of this benchmark makes handles by malloc() and no code, so that
 * what is timed is the cache.  Rounds of the sides are interleaved; each ratio
 * is of one round and the median counts.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/program.h>

#include "bench.h"
#include "original_programs.h"
#include "together.h"

#define KERNELS	     1000
#define PROGRAMS     10000
#define ROUNDS	     15
#define BINARY_BYTES 1000

static uint64_t n_ops = 1000000; /* of a thread in a round */
static char device;		 /* its address is the handle */
static const unsigned char constants[16] = { 1, 2, 3 };

/* ---- A runtime ------------------------------------------------------------- */

struct handle {
	uint64_t number; /* of the image that it was made of */
};

static struct handle *handle_new(uint64_t number)
{
	struct handle *handle = malloc(sizeof(*handle));

	if (!handle)
		bench_fail("no memory");
	handle->number = number;
	return handle;
}

static void handle_release(void *context, void *arg)
{
	free(arg);
}

static enum kiln_build_kind create_from_image(
	void *context, const struct kiln_program_image *image,
	const void *values, size_t values_size, void *const *devices,
	size_t n_devices, void **out_program,
	struct kiln_program_failure *out_failure)
{
	uint64_t number;

	memcpy(&number, image->data, sizeof(number));
	*out_program = handle_new(number);
	return KILN_BUILD_OK;
}

static enum kiln_build_kind create_from_binary(
	void *context, void *const *devices, size_t n_devices,
	const void *const *binaries, const size_t *sizes, void **out_program,
	struct kiln_program_failure *out_failure)
{
	return KILN_BUILD_FAILED;
}

static enum kiln_build_kind build(void *context, void *program,
				  void *const *devices, size_t n_devices,
				  const char *compile_options,
				  const char *link_options,
				  struct kiln_program_failure *out_failure)
{
	return KILN_BUILD_OK;
}

static enum kiln_build_kind create_kernel(
	void *context, void *program, const char *name, void **out_kernel,
	struct kiln_program_failure *out_failure)
{
	struct handle *of = program;

	*out_kernel = handle_new(of->number);
	return KILN_BUILD_OK;
}

static size_t binary_size(void *context, void *program, void *of)
{
	return BINARY_BYTES;
}

static int binary(void *context, void *program, void *of, void *data,
		  size_t size)
{
	memset(data, 0, size);
	return 1;
}

static char *device_string(void *context, void *of,
			   enum kiln_device_string which)
{
	static const char *const strings[] = { "platform", "device", "1.0",
					       "24.13" };

	return strdup(strings[which]);
}

static const struct kiln_program_runtime runtime = {
	.size = sizeof(runtime),
	.create_from_image = create_from_image,
	.create_from_binary = create_from_binary,
	.build = build,
	.release_program = handle_release,
	.create_kernel = create_kernel,
	.release_kernel = handle_release,
	.binary_size = binary_size,
	.binary = binary,
	.device_string = device_string,
};

/* ---- What is cached -------------------------------------------------------- */

/* One image, its keys, one kernel. */
struct item {
	uint64_t number; /* all of the image's bytes */
	struct kiln_program_image image;
	struct kiln_program_key *program;
	struct kiln_kernel_key *kernel;
	char name[64];
};

static struct kiln_programs *programs_new(uint64_t bytes_max)
{
	struct kiln_programs_options options;
	struct kiln_programs *programs;

	kiln_programs_options_init(&options);
	options.runtime = &runtime;
	options.bytes_max = bytes_max;
	if (kiln_programs_new(&options, &programs))
		bench_fail("no cache of programs");
	return programs;
}

static void item_init(struct item *item, struct kiln_programs *programs,
		      uint64_t number, unsigned name)
{
	struct kiln_program_request request;
	void *devices[] = { &device };

	item->number = number;
	snprintf(item->name, sizeof(item->name),
		 "_ZTSZZ4mainENKUlRN4sycl3_V17handlerEE_clES2_EUlvE%06u_",
		 name);
	kiln_program_image_init(&item->image);
	item->image.data = &item->number;
	item->image.data_size = sizeof(item->number);
	kiln_program_request_init(&request);
	request.image = &item->image;
	request.constants = constants;
	request.constants_size = sizeof(constants);
	request.devices = devices;
	request.n_devices = 1;
	if (kiln_program_key_new(programs, &request, &item->program) ||
	    kiln_kernel_key_new(item->program, &device, item->name,
				&item->kernel))
		bench_fail("no key");
}

static void item_fini(struct item *item)
{
	kiln_kernel_key_free(item->kernel);
	kiln_program_key_free(item->program);
}

static struct item *items_new(struct kiln_programs *programs, unsigned n)
{
	struct item *items = calloc(n, sizeof(*items));

	if (!items)
		bench_fail("no memory");
	for (unsigned i = 0; i < n; i++)
		item_init(&items[i], programs, i, i);
	return items;
}

static void items_free(struct item *items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		item_fini(&items[i]);
	free(items);
}

static unsigned *shuffled(unsigned n)
{
	unsigned *order = malloc(n * sizeof(*order));
	uint64_t seed = 1;

	if (!order)
		bench_fail("no memory");
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n - 1; i; i--) {
		unsigned j, other = order[i];

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		j = (unsigned)((seed >> 33) % (i + 1));
		order[i] = order[j];
		order[j] = other;
	}
	return order;
}

static void *kernel_handle(struct kiln_programs *programs,
			   const struct item *item)
{
	struct kiln_kernel *kernel;
	void *handle;

	if (kiln_kernel_get(programs, item->kernel, &kernel, NULL))
		bench_fail("no kernel");
	handle = kiln_kernel_handle(kernel);
	kiln_kernel_unref(kernel);
	return handle;
}

/* ---- Fast hits ------------------------------------------------------------- */

struct fast {
	struct kiln_programs *programs;
	struct item *items;
	unsigned *order;
};

static void prepared_side(unsigned thread, void *arg)
{
	const struct fast *fast = arg;

	for (uint64_t i = 0, place = 0; i < n_ops; i++) {
		struct kiln_kernel *kernel;

		if (kiln_kernel_get(fast->programs,
				    fast->items[fast->order[place]].kernel,
				    &kernel, NULL))
			bench_fail("no kernel");
		bench_use(kiln_kernel_handle(kernel));
		kiln_kernel_unref(kernel);
		if (++place == KERNELS)
			place = 0;
	}
}

static void found_side(unsigned thread, void *arg)
{
	const struct fast *fast = arg;

	for (uint64_t i = 0, place = 0; i < n_ops; i++) {
		struct kiln_kernel *kernel;

		if (kiln_kernel_find(fast->programs, constants,
				     sizeof(constants), &device,
				     fast->items[fast->order[place]].name,
				     &kernel))
			bench_fail("no kernel");
		bench_use(kiln_kernel_handle(kernel));
		kiln_kernel_unref(kernel);
		if (++place == KERNELS)
			place = 0;
	}
}

static void map_side(unsigned thread, void *arg)
{
	const struct fast *fast = arg;

	for (uint64_t i = 0, place = 0; i < n_ops; i++) {
		bench_use(original_hit(constants, sizeof(constants), &device,
				       fast->items[fast->order[place]].name));
		if (++place == KERNELS)
			place = 0;
	}
}

static void newest_side(unsigned thread, void *arg)
{
	const struct fast *fast = arg;

	for (uint64_t i = 0, place = 0; i < n_ops; i++) {
		bench_use(original_hit_newest(fast->order[place], &device));
		if (++place == KERNELS)
			place = 0;
	}
}

/* Right first, then fast. */
static void fast_fill(struct fast *fast)
{
	fast->programs = programs_new(0);
	fast->items = items_new(fast->programs, KERNELS);
	fast->order = shuffled(KERNELS);
	for (unsigned i = 0; i < KERNELS; i++) {
		struct item *item = &fast->items[i];
		struct handle *handle = kernel_handle(fast->programs, item);
		struct kiln_kernel *kernel;

		original_put(constants, sizeof(constants), &device, item->name,
			     handle);
		original_put_newest(i, &device, handle);
		if (handle->number != i ||
		    kernel_handle(fast->programs, item) != handle ||
		    original_hit(constants, sizeof(constants), &device,
				 item->name) != handle ||
		    original_hit_newest(i, &device) != handle)
			bench_fail("a wrong kernel");
		if (kiln_kernel_find(fast->programs, constants,
				     sizeof(constants), &device, item->name,
				     &kernel) ||
		    kiln_kernel_handle(kernel) != handle)
			bench_fail("a wrong kernel without a key");
		kiln_kernel_unref(kernel);
	}
}

static void fast_warm(void *arg)
{
	const struct fast *fast = arg;

	kernel_handle(fast->programs, fast->items); /* dear for a new thread */
}

static double measure(void (*side)(unsigned, void *), struct fast *fast,
		      unsigned n_threads)
{
	struct together together = { .begin = fast_warm,
				     .body = side,
				     .arg = fast };

	return together_run(&together, n_threads) / (double)(n_ops * n_threads);
}

static void fast_compare(struct bench *bench, struct fast *fast,
			 unsigned n_threads, double bar)
{
	enum { PREPARED, FOUND, MAP, NEWEST, SIDES };
	static const struct {
		const char *name;
		void (*run)(unsigned, void *);
	} sides[SIDES] = {
		{ "kernel hit, prepared key", prepared_side },
		{ "kernel hit, no key", found_side },
		{ "the original's map and mutex", map_side },
		{ "the original's newest, a vector and a spin lock",
		  newest_side },
	};
	const char *s = n_threads > 1 ? "s" : "";
	double ns[SIDES][ROUNDS], ratios[SIDES][ROUNDS];
	char name[128];

	for (int i = 0; i < ROUNDS; i++) {
		for (int j = 0; j < SIDES; j++)
			ns[j][i] = measure(sides[j].run, fast, n_threads);
		ratios[PREPARED][i] = ns[PREPARED][i] / ns[MAP][i];
		ratios[FOUND][i] = ns[FOUND][i] / ns[MAP][i];
		ratios[NEWEST][i] = ns[PREPARED][i] / ns[NEWEST][i];
	}
	for (int j = 0; j < SIDES; j++) {
		snprintf(name, sizeof(name), "%s, %u thread%s", sides[j].name,
			 n_threads, s);
		bench_row(bench, name, bench_median(ns[j], ROUNDS), "ns");
	}
	snprintf(name, sizeof(name),
		 "fast kernel hit : the original's map, %u thread%s", n_threads,
		 s);
	bench_row_bar(bench, name, bench_median(ratios[PREPARED], ROUNDS), "",
		      bar, BENCH_LOWER);
	snprintf(name, sizeof(name),
		 "the same without a prepared key, %u thread%s", n_threads, s);
	bench_row_bar(bench, name, bench_median(ratios[FOUND], ROUNDS), "", bar,
		      BENCH_LOWER);
	snprintf(name, sizeof(name),
		 "fast kernel hit : the original's newest, %u thread%s",
		 n_threads, s);
	bench_row(bench, name, bench_median(ratios[NEWEST], ROUNDS), "");
}

static void fast_group(struct bench *bench)
{
	struct fast fast;

	fast_fill(&fast);
	fast_compare(bench, &fast, 1, 0.8);
	fast_compare(bench, &fast, 2, 0.25);
	original_free();
	items_free(fast.items, KERNELS);
	kiln_programs_free(fast.programs);
	free(fast.order);
}

/* ---- Program hits ---------------------------------------------------------- */

static void program_side(unsigned thread, void *arg)
{
	const struct fast *fast = arg;
	/* The threads meet at the same programs, not at the same time. */
	uint64_t place = thread * (PROGRAMS / 3);

	for (uint64_t i = 0; i < n_ops; i++) {
		struct kiln_program *program;

		if (kiln_program_get(fast->programs,
				     fast->items[fast->order[place]].program,
				     &program, NULL))
			bench_fail("no program");
		bench_use(kiln_program_handle(program));
		kiln_program_unref(program);
		if (++place == PROGRAMS)
			place = 0;
	}
}

static void programs_group(struct bench *bench)
{
	double one[ROUNDS], two[ROUNDS], ratios[ROUNDS];
	struct fast fast;

	fast.programs = programs_new((uint64_t)PROGRAMS * BINARY_BYTES * 2);
	fast.items = items_new(fast.programs, PROGRAMS);
	fast.order = shuffled(PROGRAMS);
	for (unsigned i = 0; i < PROGRAMS; i++)
		kernel_handle(fast.programs, &fast.items[i]);
	for (int i = 0; i < ROUNDS; i++) {
		one[i] = measure(program_side, &fast, 1);
		two[i] = measure(program_side, &fast, 2);
		ratios[i] = one[i] / two[i];
	}
	bench_row(bench, "program hit, 10,000 programs, 1 thread",
		  bench_median(one, ROUNDS), "ns");
	bench_row(bench, "program hit, 10,000 programs, 2 threads",
		  bench_median(two, ROUNDS), "ns");
	bench_row_bar(bench, "throughput of program hits, 2 threads : 1",
		      bench_median(ratios, ROUNDS), "", 1.7, BENCH_HIGHER);
	items_free(fast.items, PROGRAMS);
	kiln_programs_free(fast.programs);
	free(fast.order);
}

/* ---- Eviction -------------------------------------------------------------- */

#define INSERTIONS 2000

/* A cache with room for so many, full, and the next number. */
struct full {
	struct kiln_programs *programs;
	uint64_t next;
	int has_one_name; /* all kernels have */
};

static void full_next(struct full *full, struct item *item)
{
	uint64_t number = full->next++;

	item_init(item, full->programs, number,
		  full->has_one_name ? 0 : (unsigned)number);
}

static void full_init(struct full *full, unsigned room, int has_one_name)
{
	full->programs = programs_new((uint64_t)room * BINARY_BYTES);
	full->has_one_name = has_one_name;
	full->next = 0;
	while (full->next < room) {
		struct item item;

		full_next(full, &item);
		kernel_handle(full->programs, &item);
		item_fini(&item);
	}
}

static void expect_full(struct full *full, unsigned room)
{
	struct kiln_programs_stats stats;

	kiln_programs_stats_init(&stats);
	if (kiln_programs_stats(full->programs, &stats) ||
	    stats.n_programs != room || stats.n_kernels != room ||
	    stats.evicted != full->next - room)
		bench_fail("kept %u, evicted %u", (unsigned)stats.n_programs,
			   (unsigned)stats.evicted);
}

/* ns for each; keys are made beforehand. */
static double insert(struct full *full, unsigned n)
{
	struct item *items = calloc(n, sizeof(*items));
	uint64_t start;
	double ns;

	if (!items)
		bench_fail("no memory");
	for (unsigned i = 0; i < n; i++)
		full_next(full, &items[i]);
	start = bench_now_ns();
	for (unsigned i = 0; i < n; i++)
		kernel_handle(full->programs, &items[i]);
	ns = (double)(bench_now_ns() - start) / n;
	items_free(items, n);
	return ns;
}

static void evict(struct bench *bench, int has_one_name, const char *names)
{
	const unsigned few = 1000, many = bench->quick ? 2000 : 100000;
	double at_few[ROUNDS], at_many[ROUNDS], ratios[ROUNDS];
	struct full small, large;
	char row[128];

	full_init(&small, few, has_one_name);
	full_init(&large, many, has_one_name);
	for (int i = 0; i < ROUNDS; i++) {
		at_few[i] = insert(&small, INSERTIONS);
		at_many[i] = insert(&large, INSERTIONS);
		ratios[i] = at_many[i] / at_few[i];
	}
	expect_full(&small, few);
	expect_full(&large, many);
	snprintf(row, sizeof(row), "evicting insertion%s, 1,000 programs",
		 names);
	bench_row(bench, row, bench_median(at_few, ROUNDS), "ns");
	snprintf(row, sizeof(row), "evicting insertion%s, 100,000 programs",
		 names);
	bench_row(bench, row, bench_median(at_many, ROUNDS), "ns");
	snprintf(row, sizeof(row),
		 "evicting insertion%s, 100,000 : 1,000 programs", names);
	bench_row_bar(bench, row, bench_median(ratios, ROUNDS), "", 1.5,
		      BENCH_LOWER);
	kiln_programs_free(small.programs);
	kiln_programs_free(large.programs);
}

static void eviction_group(struct bench *bench)
{
	evict(bench, 0, "");
	evict(bench, 1, ", kernels of one name");
}

static const struct {
	const char *name;
	void (*run)(struct bench *bench);
} groups[] = {
	{ "fast", fast_group },
	{ "programs", programs_group },
	{ "eviction", eviction_group },
};

int main(int argc, char **argv)
{
	struct bench bench;

	bench_begin(&bench, argc, argv, "program");
	if (bench.quick)
		n_ops /= 100;
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (bench_wants(&bench, groups[i].name))
			groups[i].run(&bench);
	return bench_end(&bench);
}
