/* SPDX-License-Identifier: MIT */

/*
 * NVIDIA's run-time compiler behind kiln_get_or_build(): CUDA C++ to PTX, once.
 * No GPU is needed to compile.  Where no CUDA toolkit is installed this is a
 * program that says so.
 *
 *	nvrtc_saxpy log:DIR
 */

#include <stdio.h>

#ifndef HAVE_NVRTC
int main(void)
{
	puts("nvrtc_saxpy: left out: no CUDA toolkit was there when this was "
	     "built");
	return 0;
}
#else

#include <stdlib.h>
#include <string.h>

#include <nvrtc.h>

#include <kiln/kiln.h>

static const char source[] =
	"extern \"C\" __global__ void saxpy(float *y, const float *x, float "
	"a)\n"
	"{\n"
	"	int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	y[i] = a * x[i] + y[i];\n"
	"}\n";
static const char *const options[] = { "--gpu-architecture=compute_80",
				       "--use_fast_math" };
#define N_OPTIONS ((int)(sizeof(options) / sizeof(options[0])))

/* The compiler's log, when it has refused. */
static char *log_of(nvrtcProgram program)
{
	size_t size = 0;
	char *log;

	if (nvrtcGetProgramLogSize(program, &size) || !size)
		return NULL;
	log = calloc(1, size + 1);
	if (log && nvrtcGetProgramLog(program, log)) {
		free(log);
		return NULL;
	}
	return log;
}

static void take_ptx(nvrtcProgram program, struct kiln_build_result *result)
{
	size_t size = 0;
	char *ptx = NULL;

	if (!nvrtcGetPTXSize(program, &size))
		ptx = malloc(size);
	if (!ptx || nvrtcGetPTX(program, ptx) ||
	    kiln_blob_copy(ptx, size, &result->blob))
		result->kind = KILN_BUILD_RESOURCES;
	free(ptx);
}

static void compile(const struct kiln_key *key, void *arg,
		    struct kiln_build_result *result)
{
	nvrtcProgram program;
	nvrtcResult status =
		nvrtcCreateProgram(&program, source, "saxpy.cu", 0, NULL, NULL);

	if (status == NVRTC_SUCCESS) {
		status = nvrtcCompileProgram(program, N_OPTIONS, options);
		if (status == NVRTC_SUCCESS)
			take_ptx(program, result);
		else
			result->message = log_of(program);
		nvrtcDestroyProgram(&program);
	}
	if (status == NVRTC_SUCCESS)
		return;
	result->code = (int)status;
	result->kind = status == NVRTC_ERROR_OUT_OF_MEMORY
			       ? KILN_BUILD_RESOURCES
			       : KILN_BUILD_FAILED;
}

/* All that the PTX depends on: compiler, source, options. */
static struct kiln_key *make_key(void)
{
	struct kiln_key *key = kiln_key_new();
	int major = 0, minor = 0;
	char version[32];

	(void)nvrtcVersion(&major, &minor);
	snprintf(version, sizeof(version), "%d.%d", major, minor);
	kiln_key_add_string(key, "compiler nvrtc", version);
	kiln_key_add_digest(key, "source", source, sizeof(source) - 1);
	for (int i = 0; i < N_OPTIONS; i++)
		kiln_key_add_string(key, "option", options[i]);
	return key;
}

int main(int argc, char **argv)
{
	struct kiln_options kiln_options;
	struct kiln_build_result result;
	struct kiln_key *key = make_key();
	struct kiln *kiln;
	int is_built = 0;

	kiln_options_init(&kiln_options);
	kiln_options.store_url = argc > 1 ? argv[1] : NULL;
	kiln_build_result_init(&result);
	if (kiln_key_finish(key) || kiln_open(&kiln_options, &kiln))
		return EXIT_FAILURE;
	if (kiln_get_or_build(kiln, key, compile, NULL, &result)) {
		fprintf(stderr, "nvrtc_saxpy: %d: %s\n", result.code,
			result.message ? result.message : "no log");
	} else {
		is_built = 1;
		printf("%zu bytes of PTX, %s\n", kiln_blob_size(result.blob),
		       result.source == KILN_FROM_BUILD ? "compiled"
							: "from the cache");
	}
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	return is_built ? EXIT_SUCCESS : EXIT_FAILURE;
}
#endif
