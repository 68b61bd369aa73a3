/* SPDX-License-Identifier: MIT */

#include "model.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTORS_MAX 4
#define PINS_MAX   3
#define PIECE	   24	   /* bytes that one of several actors owns */
#define TRIES_MAX  1000	   /* at a device that fails at times */
#define YIELDS_MAX 1000000 /* to one that holds a line for a moment */

struct model {
	const struct model_subject *subject;
	struct model_shape shape;
	void *cache;
	cache_devCtx_t device;
	uint8_t *expected; /* each byte is its owner's */
	/* One actor: lines of which the device has all. */
	uint8_t *on_device;
	/* The device's own dice. */
	_Atomic uint64_t n_calls;
	uint64_t fault_seed;
};

struct model_actor {
	struct model *model;
	unsigned index;
	struct model_choices choices;
	unsigned n_steps, step;
	const char *what; /* it does */
	struct model_result result;
	uint8_t *buffer, *other; /* of the device's size */
	struct {
		uint64_t addr;
		size_t count;
	} pins[PINS_MAX];
	unsigned n_pins;
};

/* ---- Choices ---------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t model_choose(struct model_choices *choices, uint32_t below)
{
	uint32_t value = 0;

	if (!choices->bytes)
		value = (uint32_t)(mix(choices->seed += 0x9e3779b97f4a7c15u) >>
				   32);
	else
		for (uint32_t range = 1; range < below && choices->n_bytes;
		     range <<= 8) {
			value = value << 8 | *choices->bytes++;
			choices->n_bytes--;
			if (range > UINT32_MAX >> 8)
				break;
		}
	return value % below;
}

int model_is_out(const struct model_choices *choices)
{
	return choices->bytes && !choices->n_bytes;
}

struct model_shape model_choose_shape(struct model_choices *choices,
				      const struct model_subject *subject,
				      size_t ways, unsigned n_actors)
{
	static const size_t lines[] = {
		1, 2, 3, 8, 16, 60, 64, 100, 512, 4096
	};
	static const unsigned rates[] = { 0, 0, 3, 20, 60 };
	static const size_t any_ways[] = { 1, 2, 3, 4, 5, 8, 16, 20 };
	struct model_shape shape = { .n_actors = n_actors };
	size_t whole;

	shape.line = lines[model_choose(choices, 10)];
	if (!ways)
		ways = any_ways[model_choose(choices, 8)];
	shape.n_ways = ways;
	shape.n_lines = ways * (1 + model_choose(choices, 6));
	whole = shape.line * shape.n_lines;
	shape.size = 1 + model_choose(choices, (uint32_t)whole * 3);
	if (model_choose(choices, 3))
		shape.size =
			(shape.size + shape.line - 1) / shape.line * shape.line;
	shape.fault_rate = rates[model_choose(choices, 5)];
	shape.n_calls = 1;
	if (!subject->resize)
		return shape;
	shape.n_calls = 1 + model_choose(choices, 3) * 2;
	shape.call_bytes_max =
		model_choose(choices, 2)
			? shape.line * (1 + model_choose(choices, 9))
			: 0;
	shape.read_ahead = model_choose(choices, 3)
				   ? 0
				   : shape.line * model_choose(choices, 9);
	shape.scan_resistant = (int)model_choose(choices, 2);
	shape.hashed = (int)model_choose(choices, 2);
	return shape;
}

/* ---- The device --------------------------------------------------------------- */

static ssize_t fail_at_times(cache_devCtx_t *device, enum device_call call,
			     uint64_t offset, size_t count)
{
	struct model *model = device->hook_arg;
	const uint64_t n = atomic_fetch_add(&model->n_calls, 1);
	const uint64_t dice = mix(model->fault_seed + n * 0x9e3779b97f4a7c15u);

	if (dice % 256 >= model->shape.fault_rate)
		return 0;
	switch (dice >> 8 & 3) {
	case 0:
		return DEVICE_NOTHING;
	case 1: /* too much */
		return (ssize_t)count + 1 + (ssize_t)(dice >> 16 & 127);
	default:
		return -EIO;
	}
}

/* ---- Saying what is wrong ------------------------------------------------------- */

static void wrong(struct model_actor *actor, const char *why, uint64_t addr,
		  long long is, long long should)
{
	const struct model_shape *shape = &actor->model->shape;

	if (actor->result.wrong)
		return;
	actor->result.wrong = 1;
	snprintf(actor->result.message, sizeof(actor->result.message),
		 "%s (%zu bytes, %zu x %zu in %zu ways, actor %u, step %u): "
		 "%s: %s at %llu: %lld, not %lld",
		 actor->model->subject->name, shape->size, shape->n_lines,
		 shape->line, shape->n_ways, actor->index, actor->step,
		 actor->what, why, (unsigned long long)addr, is, should);
}

/* Errors that are an answer: a device that fails, lines that others hold. */
static int may_fail(const struct model_actor *actor, ssize_t result)
{
	const struct model *model = actor->model;

	if (result == -EIO)
		return model->shape.fault_rate != 0;
	return model->subject->pin && (result == -EBUSY || result == -ENOSPC);
}

/* ---- Bytes ------------------------------------------------------------------------ */

static int owns(const struct model_actor *actor, uint64_t addr)
{
	const unsigned n = actor->model->shape.n_actors;

	return n == 1 || addr / PIECE % n == actor->index;
}

static int is_alone(const struct model_actor *actor)
{
	return actor->model->shape.n_actors == 1;
}

static void compare(struct model_actor *actor, uint64_t addr,
		    const uint8_t *bytes, size_t count, const char *why)
{
	const uint8_t *expected = actor->model->expected;

	for (size_t i = 0; i < count; i++) {
		if (owns(actor, addr + i) && bytes[i] != expected[addr + i]) {
			wrong(actor, why, addr + i, bytes[i],
			      expected[addr + i]);
			return;
		}
	}
}

/* Lines of [begin, end) as whole ones. */
static void widen(const struct model *model, uint64_t *begin, uint64_t *end)
{
	const uint64_t line = model->shape.line;

	*begin = *begin / line * line;
	*end = (*end + line - 1) / line * line;
	if (*end > model->shape.size)
		*end = model->shape.size;
}

/* The device must have what is expected. */
static void compare_device(struct model_actor *actor, uint64_t begin,
			   uint64_t end, const char *why)
{
	const struct model *model = actor->model;

	if (is_alone(actor) && begin < end)
		compare(actor, begin, model->device.bytes + begin, end - begin,
			why);
}

static void set_on_device(struct model_actor *actor, uint64_t begin,
			  uint64_t end, int is)
{
	struct model *model = actor->model;
	const size_t line = model->shape.line;

	for (uint64_t i = begin / line; i * line < end && is_alone(actor); i++)
		model->on_device[i] = (uint8_t)is;
}

/* A place, and a count that often ends in the same line and never beyond. */
static uint64_t choose_place(struct model_actor *actor, size_t *out_count)
{
	const struct model_shape *shape = &actor->model->shape;
	const uint64_t addr =
		model_choose(&actor->choices, (uint32_t)shape->size);
	const size_t left = shape->size - addr;
	size_t most = model_choose(&actor->choices, 2) ? shape->line
						       : shape->line * 5;

	if (most > left)
		most = left;
	*out_count = 1 + model_choose(&actor->choices, (uint32_t)most);
	return addr;
}

/* The same of the actor's own. */
static uint64_t choose_own(struct model_actor *actor, size_t *out_count)
{
	uint64_t addr = choose_place(actor, out_count);
	const size_t left = PIECE - addr % PIECE;

	if (is_alone(actor))
		return addr;
	if (*out_count > left)
		*out_count = left;
	if (!owns(actor, addr))
		*out_count = 0;
	return addr;
}

/* ---- Operations ------------------------------------------------------------------------ */

static void do_read(struct model_actor *actor)
{
	struct model *model = actor->model;
	size_t count;
	const uint64_t addr = choose_place(actor, &count);
	/* Beyond the end nothing comes. */
	const size_t more = model_choose(&actor->choices, 8) ||
					    addr + count < model->shape.size
				    ? 0
				    : 100;
	ssize_t n;

	actor->what = "read";
	n = model->subject->read(model->cache, addr, actor->buffer,
				 count + more);
	if (n == (ssize_t)count)
		compare(actor, addr, actor->buffer, count, "a byte");
	else if (!may_fail(actor, n))
		wrong(actor, "the result", addr, n, (ssize_t)count);
}

/* Which bytes a write that failed has changed. */
static void settle(struct model_actor *actor, uint64_t addr, size_t count)
{
	struct model *model = actor->model;
	ssize_t n = -EIO;

	for (int i = 0; n != (ssize_t)count && i < TRIES_MAX; i++)
		n = model->subject->read(model->cache, addr, actor->other,
					 count);
	if (n != (ssize_t)count) {
		wrong(actor, "reading again", addr, n, (ssize_t)count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (actor->other[i] != actor->buffer[i] &&
		    actor->other[i] != model->expected[addr + i]) {
			wrong(actor, "neither the old byte nor the new",
			      addr + i, actor->other[i], actor->buffer[i]);
			return;
		}
		model->expected[addr + i] = actor->other[i];
	}
}

static ssize_t write_bytes(struct model_actor *actor, uint64_t addr,
			   size_t count, int through)
{
	struct model *model = actor->model;
	const uint8_t first = (uint8_t)model_choose(&actor->choices, 256);
	ssize_t n;

	for (size_t i = 0; i < count; i++)
		actor->buffer[i] = (uint8_t)(first + i * 7);
	set_on_device(actor, addr, addr + count, 0);
	n = model->subject->write(model->cache, addr, actor->buffer, count,
				  through);
	if (n == (ssize_t)count)
		memcpy(model->expected + addr, actor->buffer, count);
	else if (may_fail(actor, n))
		settle(actor, addr, count);
	else
		wrong(actor, "the result", addr, n, (ssize_t)count);
	return n;
}

static void do_write(struct model_actor *actor)
{
	const int through = model_choose(&actor->choices, 4) == 0;
	size_t count;
	const uint64_t addr = choose_own(actor, &count);

	actor->what = through ? "write through" : "write back";
	if (count &&
	    write_bytes(actor, addr, count, through) == (ssize_t)count &&
	    through)
		compare_device(actor, addr, addr + count, "the device");
}

/* Mostly a few lines, at times all. */
static void choose_range(struct model_actor *actor, uint64_t *begin,
			 uint64_t *end)
{
	size_t count;

	*begin = choose_place(actor, &count);
	*end = *begin + count;
	if (!model_choose(&actor->choices, 6)) {
		*begin = 0;
		*end = UINT64_MAX;
	}
}

static void do_flush(struct model_actor *actor)
{
	struct model *model = actor->model;
	uint64_t begin, end;
	int err;

	choose_range(actor, &begin, &end);
	actor->what = "flush";
	err = model->subject->flush(model->cache, begin, end);
	if (end > model->shape.size)
		end = model->shape.size;
	widen(model, &begin, &end);
	if (!err) {
		compare_device(actor, begin, end, "the device");
		set_on_device(actor, begin, end, 1);
	} else if (!may_fail(actor, err)) {
		wrong(actor, "the result", begin, err, 0);
	}
}

static void do_clean(struct model_actor *actor)
{
	struct model *model = actor->model;
	uint64_t begin, end;
	int err;

	choose_range(actor, &begin, &end);
	actor->what = "clean";
	err = model->subject->clean(model->cache, begin, end);
	if (end > model->shape.size)
		end = model->shape.size;
	widen(model, &begin, &end);
	if (err && !may_fail(actor, err))
		wrong(actor, "the result", begin, err, 0);
	if (err)
		return;
	compare_device(actor, begin, end, "the device");
	set_on_device(actor, begin, end, 1);
	/* What others have done to the device since is read. */
	if (is_alone(actor) && model_choose(&actor->choices, 2)) {
		model->device.bytes[begin] ^= 0x55;
		model->expected[begin] ^= 0x55;
	}
}

static void do_invalidate(struct model_actor *actor)
{
	struct model *model = actor->model;
	const size_t line = model->shape.line;
	uint64_t begin, end;
	int err;

	if (!is_alone(actor))
		return;
	choose_range(actor, &begin, &end);
	actor->what = "invalidate";
	err = model->subject->invalidate(model->cache, begin, end);
	if (end > model->shape.size)
		end = model->shape.size;
	widen(model, &begin, &end);
	if (err && !may_fail(actor, err))
		wrong(actor, "the result", begin, err, 0);
	for (uint64_t at = begin; at < end; at += line) {
		const uint64_t after = at + line < end ? at + line : end;

		if (model->on_device[at / line])
			compare_device(actor, at, after, "the device");
		else if (err)
			continue;
		memcpy(model->expected + at, model->device.bytes + at,
		       after - at);
	}
	/* What was held is still there, or not: ask. */
	for (uint64_t at = begin; err && at < end; at++) {
		actor->buffer[0] = model->device.bytes[at];
		settle(actor, at, 1);
	}
}

static void do_granularity(struct model_actor *actor)
{
	struct model *model = actor->model;
	size_t bytes = 1;

	if (!model->subject->granularity)
		return;
	while (bytes * 2 <= model->shape.line &&
	       model_choose(&actor->choices, 3))
		bytes *= 2;
	actor->what = "granularity";
	if (model->subject->granularity(model->cache, bytes))
		wrong(actor, "the result", bytes, -1, 0);
}

/* What bytes become is not said, so they are written. */
static void do_discard(struct model_actor *actor)
{
	struct model *model = actor->model;
	ssize_t n = -EIO;
	size_t count;
	const uint64_t addr = choose_own(actor, &count);
	int err;

	if (!model->subject->discard)
		return;
	if (!count)
		return;
	actor->what = "discard";
	set_on_device(actor, addr, addr + count, 0);
	err = model->subject->discard(model->cache, addr, addr + count);
	if (err && !may_fail(actor, err))
		wrong(actor, "the result", addr, err, 0);
	for (size_t i = 0; i < count; i++)
		actor->buffer[i] = (uint8_t)(addr + i * 5);
	for (int i = 0; n != (ssize_t)count && i < YIELDS_MAX; i++) {
		n = model->subject->write(model->cache, addr, actor->buffer,
					  count, 0);
		if (n < 0 && !may_fail(actor, n))
			break;
		if (n == -EBUSY)
			sched_yield();
	}
	if (n != (ssize_t)count)
		wrong(actor, "writing again", addr, n, (ssize_t)count);
	memcpy(model->expected + addr, actor->buffer, count);
}

static void do_prefetch(struct model_actor *actor)
{
	struct model *model = actor->model;
	size_t count;
	const uint64_t addr = choose_place(actor, &count);
	int err;

	if (!model->subject->prefetch)
		return;
	actor->what = "prefetch";
	err = model->subject->prefetch(model->cache, addr, count);
	if (err && !may_fail(actor, err))
		wrong(actor, "the result", addr, err, 0);
}

static void do_get(struct model_actor *actor)
{
	struct model *model = actor->model;
	const uint64_t addr =
		model_choose(&actor->choices, (uint32_t)model->shape.size);
	const size_t line = model->shape.line;
	size_t size, should = line - addr % line;
	const void *data;
	int err;

	if (!model->subject->get)
		return;
	if (should > model->shape.size - addr)
		should = model->shape.size - addr;
	actor->what = "get";
	err = model->subject->get(model->cache, addr, &data, &size);
	if (err) {
		if (!may_fail(actor, err))
			wrong(actor, "the result", addr, err, 0);
		return;
	}
	if (size != should)
		wrong(actor, "the size", addr, (long long)size,
		      (long long)should);
	else
		compare(actor, addr, data, size, "a byte");
	/* Others' bytes do not change either as long as it is held. */
	memcpy(actor->buffer, data, size);
	(void)model->subject->read(
		model->cache,
		model_choose(&actor->choices, (uint32_t)model->shape.size),
		actor->other, 1);
	if (memcmp(actor->buffer, data, size))
		wrong(actor, "bytes that are held", addr, 1, 0);
	model->subject->release(model->cache, data);
}

static void do_unpin(struct model_actor *actor)
{
	struct model *model = actor->model;
	const unsigned i = --actor->n_pins;

	actor->what = "unpin";
	if (model->subject->unpin(model->cache, actor->pins[i].addr,
				  actor->pins[i].count))
		wrong(actor, "the result", actor->pins[i].addr, -1, 0);
}

/* Few: a set that is all pinned answers -ENOSPC for ever. */
static void do_pin(struct model_actor *actor)
{
	struct model *model = actor->model;
	size_t count;
	const uint64_t addr = choose_place(actor, &count);
	int err;

	if (!model->subject->pin)
		return;
	if (actor->n_pins == PINS_MAX || model_choose(&actor->choices, 2)) {
		if (actor->n_pins)
			do_unpin(actor);
		return;
	}
	if (model->shape.n_ways <= PINS_MAX * model->shape.n_actors)
		return;
	if (count > model->shape.line)
		count = model->shape.line;
	actor->what = "pin";
	err = model->subject->pin(model->cache, addr, count);
	if (err) {
		if (!may_fail(actor, err))
			wrong(actor, "the result", addr, err, 0);
		return;
	}
	actor->pins[actor->n_pins].addr = addr;
	actor->pins[actor->n_pins++].count = count;
}

static void do_resize(struct model_actor *actor)
{
	struct model *model = actor->model;
	const size_t n_lines =
		model->shape.n_ways * (1 + model_choose(&actor->choices, 6));
	int err;

	if (!model->subject->resize)
		return;
	if (!is_alone(actor))
		return;
	actor->what = "resize";
	err = model->subject->resize(model->cache, n_lines);
	if (!err)
		model->shape.n_lines = n_lines;
	else if (!may_fail(actor, err))
		wrong(actor, "the result", n_lines, err, 0);
}

static void step(struct model_actor *actor)
{
	static const struct {
		unsigned weight; /* of 100 */
		void (*act)(struct model_actor *actor);
	} operations[] = {
		{ 30, do_read },   { 30, do_write },	 { 6, do_flush },
		{ 8, do_clean },   { 4, do_invalidate }, { 2, do_granularity },
		{ 4, do_discard }, { 3, do_prefetch },	 { 6, do_get },
		{ 5, do_pin },	   { 2, do_resize },
	};
	unsigned dice = model_choose(&actor->choices, 100);
	size_t i = 0;

	while (dice >= operations[i].weight)
		dice -= operations[i++].weight;
	operations[i].act(actor);
}

/* ---- Runs --------------------------------------------------------------------- */

static void *run_actor(void *arg)
{
	struct model_actor *actor = arg;

	for (; actor->step < actor->n_steps && !actor->result.wrong &&
	       !model_is_out(&actor->choices);
	     actor->step++)
		step(actor);
	while (actor->n_pins)
		do_unpin(actor);
	return NULL;
}

static void close_cache(struct model *model, struct model_actor *actor)
{
	int err = -EIO;

	actor->what = "close";
	for (int i = 0; err && i < TRIES_MAX; i++)
		err = model->subject->close(model->cache);
	if (err) {
		wrong(actor, "the result", 0, err, 0);
		return;
	}
	for (size_t i = 0; i < model->shape.size; i++) {
		if (model->device.bytes[i] != model->expected[i]) {
			wrong(actor, "the device", i, model->device.bytes[i],
			      model->expected[i]);
			return;
		}
	}
	if (model->device.n_outside)
		wrong(actor, "calls outside the device", 0,
		      model->device.n_outside, 0);
	if (model->device.n_overlaps && model->shape.n_calls == 1)
		wrong(actor, "calls at a time", 0, 2, 1);
}

static struct model_result run_actors(struct model *model,
				      const struct model_choices *choices,
				      unsigned n_steps)
{
	struct model_actor actors[ACTORS_MAX] = { 0 };
	const unsigned n = model->shape.n_actors;
	pthread_t threads[ACTORS_MAX];
	struct model_result result;

	for (unsigned i = 0; i < n; i++) {
		actors[i] = (struct model_actor){ .model = model,
						  .index = i,
						  .choices = *choices,
						  .n_steps = n_steps };
		actors[i].choices.seed += (uint64_t)i << 40;
		actors[i].buffer = malloc(model->shape.size + 100);
		actors[i].other = malloc(model->shape.size + 100);
		if (!actors[i].buffer || !actors[i].other)
			abort();
	}
	for (unsigned i = 1; i < n; i++) {
		if (pthread_create(&threads[i], NULL, run_actor, &actors[i]))
			abort();
	}
	run_actor(&actors[0]);
	for (unsigned i = 1; i < n; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 1; i < n && !actors[0].result.wrong; i++)
		actors[0].result = actors[i].result;
	if (actors[0].result.wrong)
		model->subject->discard_all(model->cache);
	else
		close_cache(model, &actors[0]);
	result = actors[0].result;
	for (unsigned i = 0; i < n; i++) {
		free(actors[i].buffer);
		free(actors[i].other);
	}
	return result;
}

struct model_result model_run(const struct model_subject *subject,
			      const struct model_shape *shape,
			      const struct model_choices *choices,
			      unsigned n_steps)
{
	struct model model = { .subject = subject, .shape = *shape };
	struct model_result result = { .wrong = -1 };

	device_init(&model.device, shape->size);
	model.device.hook = fail_at_times;
	model.device.hook_arg = &model;
	model.fault_seed = choices->seed ^ shape->size;
	model.expected = malloc(shape->size);
	model.on_device = calloc(1, shape->size);
	if (!model.expected || !model.on_device)
		abort();
	memcpy(model.expected, model.device.bytes, shape->size);
	model.cache = subject->open(shape, &model.device);
	if (model.cache)
		result = run_actors(&model, choices, n_steps);
	free(model.expected);
	free(model.on_device);
	free(model.device.bytes);
	return result;
}
