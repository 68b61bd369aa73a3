/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_D3D12_H
#define KI_CLI_D3D12_H

#include "options.h"

/* `kiln gc --d3d12`: what disk cleaners do with the shader caches of programs. */
int ki_d3d12_gc(const struct ki_command *command);

#endif /* KI_CLI_D3D12_H */
