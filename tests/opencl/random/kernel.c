/* SPDX-License-Identifier: MIT */

/* What a thread does with its kernels. */

#include <stdlib.h>
#include <string.h>

#include "random.h"

/* A free place; without one the kernel goes at once. */
static void take(struct thread *thread, struct world *world, cl_program program,
		 cl_kernel handle)
{
	char name[32] = "";
	unsigned i;

	if (!handle)
		return;
	for (i = 0; i < KERNELS_MAX; i++)
		if (!thread->kernels[i].n_refs)
			break;
	if (i == KERNELS_MAX) {
		say(thread, "no place", clReleaseKernel(handle));
		return;
	}
	(void)clGetKernelInfo(handle, CL_KERNEL_FUNCTION_NAME, sizeof(name),
			      name, NULL);
	say_text(thread, "  named", name);
	thread->kernels[i] = (struct kernel){
		.handle = handle,
		.n_refs = 1,
		.world = world,
		.program = program,
		.kind = name[0] == 'k' && !name[2] ? name[1] - '0' : -1,
	};
	world->n_users++;
}

void kernel_take(struct thread *thread, struct program *program,
		 cl_kernel handle)
{
	take(thread, program->world, program->handle, handle);
}

/* ---- Launching ------------------------------------------------------------ */

static void set_arguments(struct thread *thread, struct kernel *kernel)
{
	struct world *world = kernel->world;
	int d = (int)roll(thread, 4);
	short e = (short)roll(thread, 4);

	say(thread, "argument 0",
	    clSetKernelArg(kernel->handle, 0, sizeof(cl_mem), &world->out));
	if (kernel->kind == 1) {
		say(thread, "argument 1",
		    clSetKernelArg(kernel->handle, 1, sizeof(cl_mem),
				   &world->in));
		say(thread, "argument 2",
		    clSetKernelArg(kernel->handle, 2, sizeof(d), &d));
	} else if (kernel->kind == 2) {
		say(thread, "argument 1",
		    clSetKernelArg(kernel->handle, 1, 64, NULL));
		say(thread, "argument 2",
		    clSetKernelArg(kernel->handle, 2, sizeof(e), &e));
	}
}

static void set_wrongly(struct thread *thread, struct kernel *kernel)
{
	int d = 1;

	say(thread, "no such argument",
	    clSetKernelArg(kernel->handle, 9, sizeof(d), &d));
	say(thread, "argument of a wrong size",
	    clSetKernelArg(kernel->handle, 0, 3, &d));
}

static void launch(struct thread *thread, struct kernel *kernel)
{
	static const size_t locals[] = { 4, 4, 8, 2 };
	struct world *world = kernel->world;
	unsigned device = roll(thread, world->n_devices);
	size_t global = N_ITEMS, local = PICK(thread, locals);
	int zeros[N_ITEMS] = { 0 }, out[N_ITEMS], i;
	cl_command_queue queue = world->queues[device];
	cl_int result;

	(void)clEnqueueWriteBuffer(queue, world->out, CL_TRUE, 0, sizeof(zeros),
				   zeros, 0, NULL, NULL);
	result = clEnqueueNDRangeKernel(queue, kernel->handle, 1, NULL, &global,
					roll(thread, 3) ? &local : NULL, 0,
					NULL, NULL);
	say(thread, "launch", result);
	say(thread, "read",
	    clEnqueueReadBuffer(queue, world->out, CL_TRUE, 0, sizeof(out), out,
				0, NULL, NULL));
	fprintf(thread->out, "%u out:", thread->step);
	for (i = 0; i < N_ITEMS; i++)
		fprintf(thread->out, " %d", out[i]);
	putc('\n', thread->out);
}

/* ---- Asking --------------------------------------------------------------- */

static cl_int ask_kernel(const struct question *question, cl_uint what,
			 size_t size, void *value, size_t *out_size)
{
	return clGetKernelInfo(question->kernel, what, size, value, out_size);
}

static cl_int ask_argument(const struct question *question, cl_uint what,
			   size_t size, void *value, size_t *out_size)
{
	return clGetKernelArgInfo(question->kernel, question->argument, what,
				  size, value, out_size);
}

static cl_int ask_work_group(const struct question *question, cl_uint what,
			     size_t size, void *value, size_t *out_size)
{
	return clGetKernelWorkGroupInfo(question->kernel, question->device,
					what, size, value, out_size);
}

static const struct subject {
	const char *name;
	cl_int (*ask)(const struct question *question, cl_uint what,
		      size_t size, void *value, size_t *out_size);
	cl_uint what;
} subjects[] = {
	{ "FUNCTION_NAME", ask_kernel, CL_KERNEL_FUNCTION_NAME },
	{ "NUM_ARGS", ask_kernel, CL_KERNEL_NUM_ARGS },
	{ "REFERENCE_COUNT", ask_kernel, CL_KERNEL_REFERENCE_COUNT },
	{ "ATTRIBUTES", ask_kernel, CL_KERNEL_ATTRIBUTES },
	{ "unknown of a kernel", ask_kernel, 0x4242 },
	{ "ADDRESS", ask_argument, CL_KERNEL_ARG_ADDRESS_QUALIFIER },
	{ "ACCESS", ask_argument, CL_KERNEL_ARG_ACCESS_QUALIFIER },
	{ "TYPE_NAME", ask_argument, CL_KERNEL_ARG_TYPE_NAME },
	{ "TYPE", ask_argument, CL_KERNEL_ARG_TYPE_QUALIFIER },
	{ "NAME", ask_argument, CL_KERNEL_ARG_NAME },
	{ "unknown of an argument", ask_argument, 0x4242 },
	{ "WORK_GROUP_SIZE", ask_work_group, CL_KERNEL_WORK_GROUP_SIZE },
	{ "COMPILE_SIZE", ask_work_group, CL_KERNEL_COMPILE_WORK_GROUP_SIZE },
	{ "LOCAL_MEM", ask_work_group, CL_KERNEL_LOCAL_MEM_SIZE },
	{ "PREFERRED", ask_work_group,
	  CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE },
	{ "PRIVATE_MEM", ask_work_group, CL_KERNEL_PRIVATE_MEM_SIZE },
	{ "unknown of a group", ask_work_group, 0x4242 },
};

static void show_kernel(struct thread *thread, const struct kernel *kernel)
{
	const struct subject *subject = &PICK(thread, subjects);
	struct question question = {
		.ask = subject->ask,
		.kernel = kernel->handle,
		.argument = roll(thread, 4),
	};

	if (roll(thread, 4))
		question.device = kernel->world->devices[roll(
			thread, kernel->world->n_devices)];
	ask(thread, &question, subject->name, subject->what, 0);
}

static void show_program_of(struct thread *thread, const struct kernel *kernel)
{
	cl_program program = NULL;
	cl_context context = NULL;

	say(thread, "PROGRAM",
	    clGetKernelInfo(kernel->handle, CL_KERNEL_PROGRAM, sizeof(program),
			    &program, NULL));
	say(thread, "  is its", program == kernel->program);
	say(thread, "CONTEXT",
	    clGetKernelInfo(kernel->handle, CL_KERNEL_CONTEXT, sizeof(context),
			    &context, NULL));
	say(thread, "  is its", context == kernel->world->context);
}

/* ---- Lives ---------------------------------------------------------------- */

static void kernel_release(struct thread *thread, struct kernel *kernel)
{
	say(thread, "release kernel", clReleaseKernel(kernel->handle));
	if (!--kernel->n_refs)
		kernel->world->n_users--;
}

static void clone_kernel(struct thread *thread, struct kernel *kernel)
{
	cl_int result = 1;
	cl_kernel handle = all.version >= 21
				   ? clCloneKernel(kernel->handle, &result)
				   : NULL;

	say(thread, "clone", result);
	take(thread, kernel->world, kernel->program, handle);
}

/* Whether its program is being built: that must have ended. */
static void await_program_of(struct thread *thread, const struct kernel *kernel)
{
	unsigned i;

	for (i = 0; i < PROGRAMS_MAX; i++)
		if (thread->programs[i].n_refs &&
		    thread->programs[i].handle == kernel->program)
			await(thread, &thread->programs[i]);
}

void act_on_kernel(struct thread *thread)
{
	struct kernel *kernel = &PICK(thread, thread->kernels);

	if (!kernel->n_refs)
		return;
	await_program_of(thread, kernel);
	switch (roll(thread, 16)) {
	case 0:
		say(thread, "retain kernel", clRetainKernel(kernel->handle));
		kernel->n_refs++;
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		kernel_release(thread, kernel);
		break;
	case 5:
		clone_kernel(thread, kernel);
		break;
	case 6:
		show_program_of(thread, kernel);
		break;
	case 7:
		set_wrongly(thread, kernel);
		break;
	case 8:
	case 9:
	case 10:
	case 11:
		show_kernel(thread, kernel);
		break;
	default:
		if (kernel->kind < 0)
			break;
		set_arguments(thread, kernel);
		launch(thread, kernel);
		break;
	}
}

void kernels_end(struct thread *thread)
{
	unsigned i;

	for (i = 0; i < KERNELS_MAX; i++)
		while (thread->kernels[i].n_refs)
			kernel_release(thread, &thread->kernels[i]);
}
