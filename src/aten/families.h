/* families: the tables that together are the table of operators; private to table.c and the family files. A new family is a line here. */
#ifndef TERN_ATEN_FAMILIES_H
#define TERN_ATEN_FAMILIES_H
#include "aten.h"

/* The most used come first: a row finds its number by asking each in turn. */
#define TERN_ATEN_FAMILIES(F) \
  F(pointwise)                \
  F(unary)                    \
  F(activation_pointwise)     \
  F(select)                   \
  F(compare)                  \
  F(matmul)                   \
  F(grouped)                  \
  F(reduce)                   \
  F(running)                  \
  F(statistics)               \
  F(shape)                    \
  F(fill)                     \
  F(optimizer)                \
  F(norm)                     \
  F(activation)               \
  F(attention)                \
  F(recurrent)                \
  F(loss)                     \
  F(ctc)                      \
  F(conv)                     \
  F(pooling)                  \
  F(resample)                 \
  F(grid)                     \
  F(embedding)                \
  F(index)                    \
  F(nonzero)                  \
  F(unique)                   \
  F(sort)                     \
  F(random)                   \
  F(amp)                      \
  F(special)                  \
  F(bessel)

#define TERN_ATEN_FAMILY(family)                   \
  extern const tern_aten_row tern_aten_##family[]; \
  extern const int tern_aten_##family##_count;
TERN_ATEN_FAMILIES(TERN_ATEN_FAMILY)
#undef TERN_ATEN_FAMILY

/* Ends a family file: the number of its rows. */
#define TERN_ATEN_FAMILY_END(family) const int tern_aten_##family##_count = (int)TERN_COUNT(tern_aten_##family);

#endif
