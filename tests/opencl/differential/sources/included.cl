#include "included.h"
#ifdef TWICE
#define FACTOR 2
#else
#define FACTOR 1
#endif

__kernel void included(__global int *out)
{
	out[get_global_id(0)] = OFFSET * FACTOR;
}
