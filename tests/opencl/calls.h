/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_OPENCL_CALLS_H
#define KI_TESTS_OPENCL_CALLS_H

/*
 * What the scripts of the unchanged program share (calls.c): its one context,
 * and how it says what it sees.
 */

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <stdio.h>

#define DEVICES_MAX 4

/* Of the first platform; the context has all devices, the queue the first. */
extern cl_platform_id platform;
extern cl_device_id devices[DEVICES_MAX];
extern cl_uint n_devices;
extern cl_context context;
extern cl_command_queue queue;
extern const char *options; /* of the command line, or NULL */
extern const char source[]; /* of kernels "scale" and "zero", with K */

void say(const char *what, long long value);
void say_bytes(const char *what, cl_int result, const void *data, size_t size,
	       size_t told);

/* Ask one thing in all ways. */
#define ASK(call, what, ...)                                                   \
	do {                                                                   \
		unsigned char data[4096] = { 0 };                              \
		size_t told = 0;                                               \
		cl_int result =                                                \
			call(__VA_ARGS__, what, sizeof(data), data, &told);    \
		say_bytes(#what, result, data, sizeof(data), told);            \
		told = 0;                                                      \
		result = call(__VA_ARGS__, what, 0, NULL, &told);              \
		printf("  size only: %d, %zu\n", result, told);                \
		told = 7777;                                                   \
		result = call(__VA_ARGS__, what, 0, data, &told);              \
		printf("  too small: %d, %zu\n", result, told);                \
	} while (0)

void show_binaries(cl_program program, int with_sizes);
void show_references(cl_program program);
void show_program(cl_program program);
void show_kernel(cl_kernel kernel, cl_program program);

cl_program make(const char *text);
cl_kernel make_kernel(cl_program program, const char *name);
/* KILN_TEST_CAPTURE: the binaries of what was built are to be fetched. */
int wants_capture(void);
void build(cl_program program, const char *with);
cl_int build_for(cl_program program, cl_uint n, const cl_device_id *list,
		 const char *with);
void run_scale(cl_kernel kernel);
cl_uint context_references(void);
/* A driver's threads may let go of what has been released a little later. */
void settle(cl_uint references);
void CL_CALLBACK on_release(cl_program program, void *words);
void CL_CALLBACK on_context_release(cl_context of, void *words);
/* Release queue and context, and show what the process has. */
void end(void);

/* Scripts of linking.c. */
void separate(void);
void separate_asked(void);
void separate_kernel(void);
void separate_binaries(void);
void separate_context_first(void);
void separate_notified(void);
void relinked(void);
void rebuilt(void);
void linked_built(void);
void linked_counting(void);
void library(void);
void library_asked(void);
void link_errors(void);
void link_failures(void);
void il(void);
void il_set_later(void);
void il_linked(void);
void objects(void);
void objects_turned(void);
void il_set_meanwhile(void);
void linked_meanwhile(void);
void linked_including(void);
void linked_in_doubt(void);
void header_changed(void);
void unloaded(void);
void cloned(void);

/* Scripts of devices.c. */
void vendors(void);
void vendors_late(void);
void unknown_late(void);
void some_devices(void);
void no_options(void);
void some_fail(void);
void header_changed_between(void);
void one_of_two(void);
void built_within(void);
void equal_parts(void);
void counted_part(void);
void many_contexts(void);

#endif /* KI_TESTS_OPENCL_CALLS_H */
