#include "shared.h"

__kernel void second(__global int *out)
{
	out[get_global_id(0)] = SHARED + 2;
}
