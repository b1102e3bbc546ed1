/* blocks_parts: the files that fill the block machine of one instruction set. */
#ifndef TERN_BLOCKS_PARTS_H
#define TERN_BLOCKS_PARTS_H
#include "../blocks.h"
#include "kernels.h"

void TERN_ISA_NAME(tern_block_moves)(tern_block_machine *machine);      /* blocks_move.c */
void TERN_ISA_NAME(tern_block_reductions)(tern_block_machine *machine); /* blocks_reduce.c */
void TERN_ISA_NAME(tern_block_chains)(tern_block_machine *machine);     /* blocks_chain.c */
#endif
